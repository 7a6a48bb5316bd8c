"""Questions on the terminal that started the proxy: `[y/a/N]`.

One question is shown at a time. The terminal is opened separately, so that non-blocking mode
does not affect the shell, and the event loop continues meanwhile.
"""

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import anyio

from ironcurtain_proxy.model.decision import HUMAN, TIMEOUT
from ironcurtain_proxy.model.escalation import (
    Approved,
    Declined,
    Escalation,
    Ruling,
    Unreachable,
    folded,
    places,
    question,
)
from ironcurtain_proxy.ports import Clock

TERMINAL: Final = "/dev/tty"


_ONCE: Final = frozenset({"y", "yes"})
_ALWAYS: Final = frozenset({"a", "always"})

_LOCAL_MODES: Final = 3
"""The index of these flags among a terminal's attributes."""

_MAX_ANSWER: Final = 1024
"""The largest number of bytes in an answer."""


class TerminalReviewer:
    """Implements `ports.Reviewer` over a terminal."""

    def __init__(self, clock: Clock, terminal: str = TERMINAL) -> None:
        self._clock = clock
        self._terminal = terminal
        self._turn = anyio.Lock()

    def is_reachable(self) -> bool:
        """Whether there is a terminal that the proxy may read from."""
        try:
            with _opened(self._terminal) as fd:
                return _is_ours(fd)
        except OSError:
            return False

    async def ask(self, escalation: Escalation) -> Ruling:
        """Ask when it is the question's turn, and wait at most until its deadline."""
        seconds = (escalation.deadline - self._clock.steady()).total_seconds()
        with anyio.move_on_after(seconds):
            async with self._turn:
                return await self._ask(escalation)
        return Declined(by=TIMEOUT, kind="expired")

    async def _ask(self, escalation: Escalation) -> Ruling:
        try:
            with _opened(self._terminal) as fd:
                if not _is_ours(fd):
                    return Unreachable()
                width = _columns(fd)
                rows = [row for line in question(escalation) for row in folded(line, width)]
                await _write(fd, "\n" + "\n".join(rows) + "\n")
                # Input typed before the question was shown does not answer it.
                termios.tcflush(fd, termios.TCIFLUSH)
                await _write(fd, f"Approve? {_choices(escalation)} ")
                try:
                    answer = await _read(fd)
                except BaseException:
                    with anyio.CancelScope(shield=True), suppress(OSError):
                        with anyio.move_on_after(1):
                            await _write(fd, "\n(no answer is needed any more)\n")
                    raise
        except (OSError, termios.error):
            return Unreachable()
        if answer is None:
            return Unreachable()
        return _ruling(answer, escalation)


def _choices(escalation: Escalation) -> str:
    always = [f"a{place.strip()}/" for place in places(escalation)]
    return f"[y/{''.join(always)}N]"


def _ruling(answer: str, escalation: Escalation) -> Ruling:
    word = answer.strip().lower()
    if word in _ONCE:
        return Approved(by=HUMAN)
    if word in _ALWAYS:
        # Where nothing can be remembered, the call is approved once.
        return Approved(by=HUMAN, remember=0 if escalation.candidates else None)
    others = [f"a{place.strip()}" for place in places(escalation)]
    if word in others:
        return Approved(by=HUMAN, remember=others.index(word))
    return Declined(by=HUMAN, kind="denied")


@contextmanager
def _opened(terminal: str) -> Iterator[int]:
    fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _is_ours(fd: int) -> bool:
    """Whether a person could type an answer to the proxy at this terminal.

    A background process that reads from its terminal is stopped by SIGTTIN, which would stop the
    proxy. And while another program reads single keys, a key meant for it could become an
    answer.
    """
    try:
        local_modes = termios.tcgetattr(fd)[_LOCAL_MODES]
        return bool(local_modes & termios.ICANON) and os.tcgetpgrp(fd) == os.getpgrp()
    except (OSError, termios.error):
        return False


def _columns(fd: int) -> int | None:
    with suppress(OSError):
        return os.get_terminal_size(fd).columns or None
    return None


async def _write(fd: int, text: str) -> None:
    data = memoryview(text.encode("utf-8", "backslashreplace"))
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            await anyio.wait_writable(fd)


async def _read(fd: int) -> str | None:
    """One line without its end, or None if the terminal was taken away or closed."""
    while True:
        await anyio.wait_readable(fd)
        if not _is_ours(fd):
            return None
        try:
            data = os.read(fd, _MAX_ANSWER)
        except BlockingIOError:
            continue
        # Half a line, or several at once, is no deliberate answer to this question.
        line, end, rest = data.partition(b"\n")
        return line.decode("utf-8", "replace") if end and not rest else ""
