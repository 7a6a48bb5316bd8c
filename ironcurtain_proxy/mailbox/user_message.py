"""The user's last message, as the session left it in `user-context.json`.

Read once a question: message, source and age come from the same bytes. Never raises: what is
missing, malformed or not trusted is no message, and no message means that a person is asked. This
file does not know what the message is for.
"""

import os
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.values import object_of
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.strict_json import strict_json

FILE_NAME: Final = "user-context.json"
PTY_VARIABLE: Final = "IRONCURTAIN_PTY_SESSION"
TRUSTED_SOURCE: Final = "mux-trusted-input"
MAX_AGE_SECONDS: Final = 120.0
MAX_BYTES: Final = 1 << 20


class UserMessage(Struct, frozen=True):
    """One message, distinguished from a later one with the same text."""

    text: str
    turn: str
    """A value that differs from turn to turn, even for equal texts."""


MessageSource: TypeAlias = Callable[[], UserMessage | None]
"""The source of the last message: a file, or the memory of a session in this process."""


class _Context(Struct, frozen=True):
    message: str
    source: str | None
    timestamp: str | None
    written_ns: int


def read_user_context(directory: Path) -> str | None:
    """Read the message from the file, or None if there is no usable one."""
    context = _read(directory)
    return None if context is None else context.message


def is_pty_session(environ: Mapping[str, str]) -> bool:
    """Return whether the agent runs in a terminal of its own: other programs can write the file."""
    return environ.get(PTY_VARIABLE) == "1"


class ContextFile(Struct, frozen=True, kw_only=True):
    """The message of the current turn, from the escalation directory."""

    directory: Path
    clock: Clock
    is_pty: bool = False
    """Whether only a message counts that a trusted terminal wrote within two minutes."""

    def __call__(self) -> UserMessage | None:
        """Read the message now. Blocks as long as the disk does."""
        context = _read(self.directory)
        if context is None or not self._is_trusted(context):
            return None
        turn = f"{context.timestamp or ''}@{context.written_ns}"
        return UserMessage(context.message, turn)

    def _is_trusted(self, context: _Context) -> bool:
        if self.is_pty and context.source != TRUSTED_SOURCE:
            return False
        written = _time_of(context.timestamp)
        if written is None:
            return not self.is_pty
        age = (self.clock.now() - written).total_seconds()
        return 0 <= age <= MAX_AGE_SECONDS


def _time_of(timestamp: str | None) -> datetime | None:
    if timestamp is None:
        return None
    try:
        parsed = datetime.fromisoformat(timestamp)
        return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _read(directory: Path) -> _Context | None:
    try:
        raw, written_ns = _bytes(directory / FILE_NAME)
        document = object_of(strict_json(raw))
    except (OSError, ValueError):
        return None
    message = document.get("userMessage")
    if not isinstance(message, str) or not message.strip():
        return None
    source, timestamp = document.get("source"), document.get("timestamp")
    return _Context(
        message,
        source if isinstance(source, str) else None,
        timestamp if isinstance(timestamp, str) else None,
        written_ns,
    )


def _bytes(path: Path) -> tuple[bytes, int]:
    """Return the file's bytes and when it was written.

    Raises:
        OSError: it is not a regular file of ours, or too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError("not a regular file of ours")
        if status.st_mode & 0o022:
            raise OSError("others can write it")
        raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise OSError("too large")
        return raw, status.st_mtime_ns
