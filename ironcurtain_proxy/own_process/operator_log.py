"""What the operator reads while the proxy runs: one line on standard error, all in the session log.

A fault that comes with every call is said a few times a minute and then counted: a thousand lines
hide what else there is, and fill the disk that the audit log needs. Nothing that goes wrong with
these lines, such as a full disk, is worth a traceback on standard error or another exit code.
"""

import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ironcurtain_proxy.downstream.session_log import SessionLog

WINDOW_SECONDS: Final = 60.0
ON_STDERR: Final = 5
"""Lines of one kind in a window."""
IN_SESSION_LOG: Final = 200
_MOST_KINDS: Final = 500
_SHOWN: Final = 300
"""Characters of an example."""


def say(text: str) -> None:
    """One line for people. A standard error that takes nothing keeps nobody from working."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"ironcurtain-proxy: {text}\n")


def configure_logging(session_log: Path) -> Callable[[], None]:
    """One line for people on standard error; everything, with tracebacks, in the session log.

    Returns:
        What is to be called at the end: it says what was counted and not said yet.
    """
    # A handler that cannot write would print a traceback for every line that it loses.
    logging.raiseExceptions = False
    brief = logging.StreamHandler()
    brief.setLevel(logging.WARNING)
    brief.setFormatter(_OneLine())
    handlers = [Sparing(brief, most=ON_STDERR)]
    log = SessionLog(session_log)
    if log.is_open:
        full = _InSessionLog(log)
        full.setFormatter(logging.Formatter("%(asctime)s ironcurtain-proxy %(message)s"))
        handlers.append(Sparing(full, most=IN_SESSION_LOG))
    logging.basicConfig(level=logging.WARNING, handlers=handlers, force=True)

    def finish() -> None:
        for handler in handlers:
            handler.say_what_was_left_out()

    return finish


@dataclass(slots=True)
class _Kind:
    """Lines that say the same of different things."""

    since: float
    said: int = 0
    left_out: int = 0
    last: str = ""


class Sparing(logging.Handler):
    """Hands on the first lines of each kind in a minute, and counts the rest.

    A kind is the message without its arguments: `call %s is not recorded`.
    """

    def __init__(
        self, inner: logging.Handler, *, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(inner.level)
        self._inner = inner
        self._most = most
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a line on, or count it."""
        now = self._clock()
        # Where the message is all argument, it is what tells one kind from another.
        name = record.getMessage() if record.msg == "%s" else str(record.msg)
        kind = self._kinds.get(name)
        if kind is None or now - kind.since > WINDOW_SECONDS:
            if kind is not None:
                self._count_up(kind)
            if len(self._kinds) >= _MOST_KINDS:
                self.say_what_was_left_out()
            kind = self._kinds[name] = _Kind(now)
        # Some lines bound themselves, and each of them counts.
        if kind.said < max(self._most, getattr(record, "most", 0)):
            kind.said += 1
            self._inner.handle(record)
        else:
            kind.left_out += 1
            with suppress(Exception):
                kind.last = record.getMessage()[:_SHOWN]

    def say_what_was_left_out(self) -> None:
        """Say the counts now, and begin anew."""
        for kind in self._kinds.values():
            self._count_up(kind)
        self._kinds.clear()

    def _count_up(self, kind: _Kind) -> None:
        if not kind.left_out:
            return
        lines = f"{kind.left_out} more line{'' if kind.left_out == 1 else 's'}"
        text = f"{lines} like this one: {kind.last}"
        fields = {"msg": text, "levelno": logging.ERROR, "levelname": "ERROR", "name": __name__}
        self._inner.handle(logging.makeLogRecord(fields))


class _InSessionLog(logging.Handler):
    """Writes to the log that servers' lines go to, which is kept within its bounds there."""

    def __init__(self, log: SessionLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self._log.append(self.format(record))


class _OneLine(logging.Formatter):
    """Leaves tracebacks to the session log."""

    def format(self, record: logging.LogRecord) -> str:
        """The message alone."""
        return f"ironcurtain-proxy: {record.getMessage()}".replace("\n", " ")
