"""Messages to the operator: one line each on standard error, in full in the session log.

A repeated fault is printed a few times a minute and then counted: a thousand identical lines
would hide the others and fill the disk that the audit log needs. A failure to write these
messages, such as a full disk, causes neither a traceback on standard error nor another exit
code.
"""

import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.downstream.session_log import SessionLog

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
        """The message alone."""
        return f"ironcurtain-proxy: {record.getMessage()}".replace("\n", " ")
