"""What a mailbox shows of its session: the user's last message, and the remembered grants.

The session left the message in `user-context.json`. It is read once a question: message, source and
age come from the same bytes. Nothing is raised: what is missing, malformed or not trusted is no
message, and no message means that a person is asked. This file does not know what the message is
for.

`grants.json` is written for people and read by no decision; `grants-command-<id>.json` says
`{"action": "revoke", "id": ...}` or `{"action": "clear"}`: both can only take away.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson
from msgspec import Struct

from ironcurtain_proxy.mailbox.mailboxes import object_in
from ironcurtain_proxy.mailbox.messages import MAX_RESPONSE_BYTES, Owner, owner_of
from ironcurtain_proxy.model.values import Json, lazy, object_of
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.private_directory import MailboxDirectory
from ironcurtain_proxy.strict_json import strict_json

# --- the user's last message

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
        return 0 <= (self.clock.now() - written).total_seconds() <= MAX_AGE_SECONDS


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


# --- grants

GrantsAction: TypeAlias = Literal["revoke", "clear"]

GRANTS_NAME: Final = "grants.json"
MAX_GRANTS_BYTES: Final = 64 * 1024 * 1024
_STEP_SECONDS: Final = 0.01
_COMMAND: Final = lazy(r"grants-command-[0-9a-f-]{1,64}\.json", re.ASCII)


def is_grants_command(name: str) -> bool:
    """Return whether a file of this name is a command."""
    return _COMMAND.fullmatch(name) is not None


def grants_bytes(session: str, grants: Sequence[Mapping[str, Json]], owner: Owner) -> bytes:
    """Return the content of the file with the remembered grants."""
    fields = {
        "session": session,
        "owner": {"pid": owner.pid, "startTime": owner.start_time},
        "grants": [dict(grant) for grant in grants],
    }
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2)


def read_grants(place: MailboxDirectory) -> Mapping[str, Json] | None:
    """Return the grants in the file, or None if there is no valid file."""
    fields = object_in(place, GRANTS_NAME, MAX_GRANTS_BYTES)
    return fields if isinstance(fields.get("grants"), list) else None


def grants_owner(place: MailboxDirectory) -> Owner | None:
    """Return the process that the grants belong to."""
    fields = read_grants(place)
    return None if fields is None else owner_of(fields.get("owner"))


def discard_grants(place: MailboxDirectory, owner: Owner) -> None:
    """Remove the file of this owner: its grants end with the session."""
    if grants_owner(place) == owner:
        place.discard_ours(GRANTS_NAME)


def put_command(place: MailboxDirectory, action: GrantsAction, grant: str | None) -> str:
    """Write a command for the proxy.

    Returns:
        The file's name: see `is_carried_out`.

    Raises:
        OSError: it could not be written.
    """
    name = f"grants-command-{os.urandom(16).hex()}.json"
    fields = {"action": action} if grant is None else {"action": action, "id": grant}
    os.close(place.put(name, orjson.dumps(fields)))
    return name


def is_carried_out(place: MailboxDirectory, name: str, seconds: float = 3.0) -> bool:
    """Wait until the proxy has carried out a command; False if it does not in time.

    Then nobody runs there any more; the command is taken back.
    """
    end = time.monotonic() + seconds
    while place.has(name):
        if time.monotonic() >= end:
            place.discard(name)
            return False
        time.sleep(_STEP_SECONDS)
    return True


def read_command(place: MailboxDirectory, name: str) -> tuple[GrantsAction, str | None] | None:
    """Return the command in a file, or None if it is not understood."""
    fields = object_in(place, name, MAX_RESPONSE_BYTES)
    match fields.get("action"), fields.get("id"):
        case "clear", _:
            return "clear", None
        case "revoke", str(grant):
            return "revoke", grant
        case _:
            return None
