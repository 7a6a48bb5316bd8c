"""The remembered grants, shown in a file, and an operator's commands about them.

`grants.json` is written for people and read by no decision; `grants-command-<id>.json` says
`{"action": "revoke", "id": ...}` or `{"action": "clear"}`: both can only take away.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import orjson

from ironcurtain_proxy.mailbox.mailboxes import object_in
from ironcurtain_proxy.mailbox.messages import MAX_RESPONSE_BYTES, Owner, owner_of
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_directory import MailboxDirectory

GrantsAction: TypeAlias = Literal["revoke", "clear"]

GRANTS_NAME: Final = "grants.json"
MAX_GRANTS_BYTES: Final = 64 * 1024 * 1024
_STEP_SECONDS: Final = 0.01
_COMMAND: Final = re.compile(r"grants-command-[0-9a-f-]{1,64}\.json", re.ASCII)


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
