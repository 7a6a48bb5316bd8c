"""The proxy's own process: its clocks and ids, and what the operator reads of it.

A message is one line on standard error, and stands in full in the session log. A repeated fault is
printed a few times a minute and then counted: a thousand identical lines would hide the others and
fill the disk that the audit log needs. A failure to write these messages, such as a full disk,
causes neither a traceback on standard error nor another exit code.

Where a call needs a reviewer and nobody reviews, the operator reads it on standard error, and the
client's user as a log message of the protocol. Replies to the agent name no command: see
`agent.replies`. The memory of large messages is returned to the system.
"""

import ctypes
import logging
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

import anyio
import anyio.to_thread
from msgspec import Struct

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.session_log import SessionLog
from ironcurtain_proxy.mediation.journal import Tell
from ironcurtain_proxy.model.escalation import EscalationId
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.steady_clock import seconds_since_boot

WINDOW_SECONDS: Final = 60.0
ON_STDERR: Final = 5
"""The largest number of lines of one kind in a window."""
IN_SESSION_LOG: Final = 200
_MOST_KINDS: Final = 500
_SHOWN: Final = 300
"""The largest number of characters of an example."""


def say(text: str) -> None:
    """Print one line for people. A closed or full standard error is ignored."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"ironcurtain-proxy: {text}\n")


def configure_logging(session_log: Path) -> Callable[[], None]:
    """Print one line per message on standard error, and log everything with tracebacks.

    Returns:
        A function to call at the end: it prints the counts that were not printed yet.
    """
    # A failing handler would print a traceback for every line that it loses.
    logging.raiseExceptions = False
    brief = logging.StreamHandler()
    brief.setLevel(logging.WARNING)
    brief.setFormatter(_OneLine())
    handlers = [RepeatLimiter(brief, most=ON_STDERR)]
    log = SessionLog(session_log)
    if log.is_open:
        full = _InSessionLog(log)
        full.setFormatter(logging.Formatter("%(asctime)s ironcurtain-proxy %(message)s"))
        handlers.append(RepeatLimiter(full, most=IN_SESSION_LOG))
    logging.basicConfig(level=logging.WARNING, handlers=handlers, force=True)

    def finish() -> None:
        for handler in handlers:
            handler.say_what_was_left_out()

    return finish


class _MessageKind(Struct):
    """Lines with the same message and different arguments."""

    since: float
    said: int = 0
    left_out: int = 0
    last: str = ""


class RepeatLimiter(logging.Handler):
    """Prints the first lines of each kind in a minute, and counts the others.

    A kind is the message without its arguments: `call %s is not recorded`.
    """

    def __init__(
        self, inner: logging.Handler, *, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(inner.level)
        self._inner = inner
        self._most = most
        self._clock = clock
        self._kinds: dict[str, _MessageKind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line, or count it."""
        now = self._clock()
        # Where the message is only a placeholder, the argument tells the kinds apart.
        name = record.getMessage() if record.msg == "%s" else str(record.msg)
        kind = self._kinds.get(name)
        if kind is None or now - kind.since > WINDOW_SECONDS:
            if kind is not None:
                self._count_up(kind)
            if len(self._kinds) >= _MOST_KINDS:
                self.say_what_was_left_out()
            kind = self._kinds[name] = _MessageKind(now)
        # Some lines limit their own number, and each of them is printed.
        if kind.said < max(self._most, getattr(record, "most", 0)):
            kind.said += 1
            self._inner.handle(record)
        else:
            kind.left_out += 1
            with suppress(Exception):
                kind.last = record.getMessage()[:_SHOWN]

    def say_what_was_left_out(self) -> None:
        """Print the counts, and reset them."""
        for kind in self._kinds.values():
            self._count_up(kind)
        self._kinds.clear()

    def _count_up(self, kind: _MessageKind) -> None:
        if not kind.left_out:
            return
        lines = f"{kind.left_out} more line{'' if kind.left_out == 1 else 's'}"
        text = f"{lines} like this one: {kind.last}"
        fields = {"msg": text, "levelno": logging.ERROR, "levelname": "ERROR", "name": __name__}
        self._inner.handle(logging.makeLogRecord(fields))


class _InSessionLog(logging.Handler):
    """Writes to the session log, whose size is bounded where it is written."""

    def __init__(self, log: SessionLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self._log.append(self.format(record))


class _OneLine(logging.Formatter):
    """Formats a message without its traceback, which the session log has."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message alone."""
        return f"ironcurtain-proxy: {record.getMessage()}".replace("\n", " ")


# --- unattended


LOGGER: Final = "ironcurtain"
"""The proxy's logger name in log messages to the client. Messages of servers never use it."""


def telling(settings: Settings, log: Callable[[Mapping[str, Json]], Awaitable[None]]) -> Tell:
    """Return a function that sends the notice.

    Args:
        settings: say where the questions are put.
        log: sends the `params` of a log message to the client.
    """

    async def tell() -> None:
        text = nobody_reviews(settings)
        say(text)
        await log({"level": "warning", "logger": LOGGER, "data": text})

    return tell


def nobody_reviews(settings: Settings) -> str:
    """Return the event and the command to run, on one line."""
    refused = "a call needs an approval and was refused, because nobody is reviewing"
    if "mailbox" not in settings.escalation.channels:
        ways = ", ".join(settings.escalation.channels) or "no way at all"
        return f"{refused}; escalation.channels asks by {ways} only: add mailbox to it"
    return f"{refused}; to review, run in a terminal: {review_command(settings)}"


def review_command(settings: Settings) -> str:
    """Return the command that shows this session's questions."""
    places = settings.mailboxes
    if len(places) == 1 and settings.escalation_dir is None:
        return "ironcurtain-proxy review"
    named = [part for place in places for part in ("--dir", str(place))]
    return shlex.join(["ironcurtain-proxy", "review", *named])


# --- memory


_QUIET: Final = 0.25
"""Seconds without a large message after which memory is returned."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""The numbers of glibc's parameters, from `malloc.h`."""
_LARGEST_REUSED: Final = 32 << 20
"""Bytes of a block, which glibc otherwise takes from the system each time and returns at once. It
accepts no more."""
_MOST_KEPT: Final = 64 << 20
"""Free bytes at the end of the heap."""


class MemoryTrimmer:
    """Returns free memory when no large message has come for a while.

    glibc keeps freed memory: three copies of a 10 MiB result stayed resident for as long as the
    proxy ran. Returning each at once costs a third of the time of a large result, because the
    next copy needs fresh pages: so glibc keeps them until here. Other allocators are left alone.
    """

    def __init__(self, used: Callable[[], int]) -> None:
        """Begin with no large message seen. `used` gives the bytes of those still in memory."""
        self._large, self._used = anyio.Event(), used
        libc = ctypes.CDLL(None)
        self._trim: Callable[[int], object] | None = getattr(libc, "malloc_trim", None)
        set_option: Callable[[int, int], object] | None = getattr(libc, "mallopt", None)
        if self._trim is not None and set_option is not None:
            set_option(_MMAP_THRESHOLD, _LARGEST_REUSED)
            set_option(_TRIM_THRESHOLD, _MOST_KEPT)

    def note_large(self) -> None:
        """Note that a large message has come."""
        self._large.set()

    async def run(self) -> None:
        """Return free memory until cancelled."""
        while self._trim is not None:
            await self._large.wait()
            # On a busy machine an answer is in memory for longer than the moment of quiet; what is
            # freed after that would stay.
            while self._large.is_set() or self._used():
                self._large = anyio.Event()
                with anyio.move_on_after(_QUIET):
                    await self._large.wait()
            await anyio.to_thread.run_sync(self._trim, 0)


# --- clocks

_wall: Final = partial(datetime.now, UTC)  # noqa: TID251  the one clock

_BEGAN: Final = _wall(), seconds_since_boot()
"""One starting point for all clocks of this process, so that their values can be compared."""


class SystemClock(Struct, eq=False):
    """Implements `ports.Clock` with the machine's clocks."""

    now: Callable[[], datetime] = _wall
    """Aware, UTC."""
    elapsed: Callable[[], float] = seconds_since_boot
    began: tuple[datetime, float] = _BEGAN

    def steady(self) -> datetime:
        """Aware, UTC; never jumps."""
        moment, elapsed = self.began
        return moment + timedelta(seconds=self.elapsed() - elapsed)

    monotonic = staticmethod(monotonic)
    """Seconds. Asked at most steps of a call, so there is no function around it."""


class RandomIds:
    """Random names."""

    @staticmethod
    def new() -> RequestId:
        """Return a random UUID for a call; `uuid.uuid4` takes three times as long."""
        one = os.urandom(16).hex()
        variant = _VARIANTS[one[16]]
        return RequestId(f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{variant}{one[17:20]}-{one[20:]}")

    def new_escalation(self) -> EscalationId:
        """Return a fresh id of a question."""
        return EscalationId(self.new())


_VARIANTS: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""The digits that name the variant of RFC 9562: two random bits are left."""


def machine_id() -> str:
    """Return a name of this machine that tells it from others, in hexadecimal."""
    known = b""
    with suppress(OSError):
        known = Path("/etc/machine-id").read_bytes().strip()
    # Containers of one image may have the same file.
    return sha256(known + b"\0" + os.uname().nodename.encode()).hexdigest()[:32]
