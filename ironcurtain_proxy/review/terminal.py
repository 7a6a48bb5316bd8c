"""The order of reviewers, and two of their channels: the terminal, and an embedding program.

The LLM approver comes first, but only while a person could be asked after it: it assists a person
and replaces none.

The terminal that started the proxy shows one question at a time, `[y/a/N]`. It is opened
separately, so that non-blocking mode does not affect the shell, and the event loop continues
meanwhile. From a function of the embedding program, any return value other than a clear approval is
a refusal.
"""

import logging
import os
import termios
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from inspect import isawaitable
from typing import Final, Protocol, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.decision import HUMAN, TIMEOUT, Person, Program, of_record
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
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import Clock, Reviewer

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
        """Return whether there is a terminal that the proxy may read from."""
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
    """Return whether a person could type an answer to the proxy at this terminal.

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
    """Return one line without its end, or None if the terminal was taken away or closed."""
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


# --- callback


_log: Final = logging.getLogger(__name__)

OnEscalation: TypeAlias = Callable[[Escalation], "Awaitable[object] | object"]
"""Answers a question with `Approved` or `Declined`, or in the words of response files:
`{"decision": "approved" | "denied", "whitelistSelection": 0}`. A plain function must not block.
"""


class CallbackReviewer:
    """Implements `ports.Reviewer` over a function."""

    def __init__(self, on_escalation: OnEscalation, clock: Clock) -> None:
        self._on_escalation = on_escalation
        self._clock = clock

    def is_reachable(self) -> bool:
        """Return True: a function can always be called."""
        return True

    async def ask(self, escalation: Escalation) -> Ruling:
        """Call the function, and wait at most until the escalation's deadline."""
        seconds = (escalation.deadline - self._clock.steady()).total_seconds()
        if seconds <= 0:
            return _expired()
        answer: object = None
        with anyio.move_on_after(seconds) as waited:
            try:
                found = self._on_escalation(escalation)
                answer = await found if isawaitable(found) else found
            except Exception as error:  # noqa: BLE001  its defect refuses one call, no more
                _log.exception("on_escalation failed")
                return _invalid(f"on_escalation raised {type(error).__name__}")
        if waited.cancelled_caught:
            return _expired()
        return _ruling_of(answer, escalation)


def _ruling_of(answer: object, escalation: Escalation) -> Ruling:
    match answer:
        case Approved(remember=remember):
            if remember is not None and escalation.chosen(remember) is None:
                return _invalid("on_escalation would remember what was not offered")
            return _by_reviewer(answer)
        case Declined():
            return _by_reviewer(answer)
        case {"decision": "approved", **more}:
            chosen = more.get("whitelistSelection")
            place = chosen if chosen is None or isinstance(chosen, int) else -1
            return _ruling_of(Approved(by=HUMAN, remember=place), escalation)
        case {"decision": "denied"}:
            return Declined(by=HUMAN, kind="denied")
        case _:
            return _invalid("on_escalation gave no ruling")


def _by_reviewer(ruling: Approved | Declined) -> Ruling:
    """Return the ruling if it is a person's or a named reviewer's, also if that is named as text.

    The embedding program answers for its user, and never in the name of a part of the proxy.
    """
    said: object = ruling.by
    by = of_record(said) if isinstance(said, str) else said
    if not isinstance(by, Person | Program):
        return _invalid("on_escalation names a reviewer that only the proxy has")
    return replace(ruling, by=by)


def _expired() -> Declined:
    return Declined(by=TIMEOUT, kind="expired")


def _invalid(reason: str) -> Declined:
    return Declined(by=HUMAN, kind="invalid", reason=reason)


# --- channel order


class Channel(Struct, frozen=True):
    """A way to a reviewer."""

    reviewer: Reviewer
    is_reachable: Callable[[], bool]
    """Whether somebody seems to be there. The answer may still be `Unreachable`."""
    can_sign: bool = False
    """Whether signed answers come by it. A question that needs them is asked nowhere else."""
    name: str = ""
    """The channel's name for the record: `mailbox`, `elicitation`, `terminal`."""


class FirstReviewer(Reviewer, Protocol):
    """A reviewer that is asked before any person, and told what a person refused."""

    async def note_answer(self, escalation: Escalation, ruling: Ruling) -> None:
        """Learn what somebody else answered: nothing that a person refused is approved later."""


def _tell_nobody(_escalation: Escalation) -> None:
    """Send no notices."""


class Panel(Struct, frozen=True):
    """Asks its channels in turn until one answers. Implements `ports.Reviewer`."""

    channels: Sequence[Channel]
    """The channels in the order in which they are asked."""
    first: FirstReviewer | None = None
    """The LLM approver, or None if it is off."""
    shadow: bool = False
    """Whether the LLM approver is asked beside the others, and its answer recorded and not used."""

    tell: Callable[[Escalation], None] = _tell_nobody
    """Called with each question that a person is asked. Never blocks."""

    def is_reachable(self) -> bool:
        """Return whether any channel seems to reach somebody."""
        return any(channel.is_reachable() for channel in self.channels)

    async def ask(self, escalation: Escalation) -> Ruling:
        """Return the first valid answer; `Unreachable` if there was none."""
        present = [
            channel
            for channel in self.channels
            if channel.is_reachable() and (channel.can_sign or escalation.signing is None)
        ]
        if not present:
            return Unreachable()
        if self.first is None:
            return await self._answer(present, escalation)
        if self.shadow:
            return await self._beside(self.first, present, escalation)
        ruling = await self.first.ask(escalation)
        if not isinstance(ruling, Unreachable):
            return ruling
        return _with(ruling.details, await self._answer(present, escalation))

    async def _beside(
        self, first: FirstReviewer, present: list[Channel], escalation: Escalation
    ) -> Ruling:
        """Return a person's answer, with the LLM approver's opinion if it was ready by then."""
        thought: list[tuple[str, Json]] = []

        async def think() -> None:
            ruling = await first.ask(escalation)
            # The LLM approver's approval is never used here, whatever it says of itself.
            thought.extend(ruling.details if isinstance(ruling, Unreachable) else ())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(think)
            ruling = await self._answer(present, escalation)
            tasks.cancel_scope.cancel()
        return _with(tuple(thought), ruling)

    async def _answer(self, present: list[Channel], escalation: Escalation) -> Ruling:
        self.tell(escalation)
        for channel in present:
            ruling = await channel.reviewer.ask(escalation)
            if isinstance(ruling, Unreachable):
                continue
            if self.first is not None:
                await self.first.note_answer(escalation, ruling)
            return replace(ruling, details=(*_way(channel, ruling), *ruling.details))
        return Unreachable()


def _with(thought: tuple[tuple[str, Json], ...], ruling: Ruling) -> Ruling:
    return replace(ruling, details=(*thought, *ruling.details))


def _way(channel: Channel, ruling: Approved | Declined) -> tuple[tuple[str, Json], ...]:
    """Return the channel by which the answer came."""
    is_answer = isinstance(ruling, Approved) or ruling.kind == "denied"
    return (("channel", channel.name),) if channel.name and is_answer else ()


class LateChannel(Struct):
    """Implements `ports.Reviewer`. Before it opens, it reaches nobody."""

    _reviewer: Reviewer | None = None
    _is_reachable: Callable[[], bool] | None = None

    def open(self, reviewer: Reviewer, is_reachable: Callable[[], bool]) -> None:
        """Ask this reviewer from now on."""
        self._reviewer, self._is_reachable = reviewer, is_reachable

    def is_reachable(self) -> bool:
        """Return whether somebody seems to be there."""
        return self._is_reachable is not None and self._is_reachable()

    async def ask(self, escalation: Escalation) -> Ruling:
        """Return the reviewer's ruling."""
        if self._reviewer is None:
            return Unreachable()
        return await self._reviewer.ask(escalation)
