"""Brings the configuration file of an older version up to date.

Before `approvalPolicy` there was a switch, `approvalRequired`. What it means now is read off the
file as it stands, before any default: with the default in its place it would never be looked at.
The same meaning counts whether the file could be rewritten or not.

Touches only `~/.ironcurtain/config.json`: a file that was named for us is its author's to change.
"""

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson

from ironcurtain_proxy.config.migration.json_insertion import Insertion, inserted
from ironcurtain_proxy.config.migration.rewriting import rewrite
from ironcurtain_proxy.model.json import Json

MigratedMode: TypeAlias = Literal["configured", "dangerous"]

INTERCEPTOR: Final = ("security", "interceptor")
_AUTO_APPROVE: Final = Insertion(
    (), "autoApprove", {"enabled": False, "modelId": "anthropic:claude-haiku-4-5"}
)
_MAX_BYTES: Final = 4 * 1024 * 1024


def migrated_mode(interceptor: Mapping[str, Json]) -> MigratedMode | None:
    """The approval policy that a legacy section stands for; None: it stands for none.

    A section that names a policy keeps it. `approvalRequired: false` never meant that nothing may
    ask, so it becomes the default, not "none".
    """
    if "approvalPolicy" in interceptor or interceptor.get("approvalRequired") is not True:
        return None
    return "configured" if interceptor.get("sensitiveTools") else "dangerous"


def migrate_file(file: Path, now: datetime) -> tuple[str, ...]:
    """Insert what an older version did not know: the policy, and the auto-approver, off.

    In one step, with a copy of the file as it was beside it. A file that needs nothing, or is no
    configuration, is left alone.

    Args:
        file: the usual configuration file, read and found right already.
        now: for the name of the copy.

    Returns:
        What to tell the operator, a line for each change.
    """
    real = Path(os.path.realpath(file))
    try:
        before = real.read_bytes()
    except OSError:
        return ()
    missing = _missing(before)
    after = inserted(before, missing) if missing else None
    if after is None:
        return ()
    try:
        backup = rewrite(file, before, after, now)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else "not possible"
        # The auto-approver is off without a word; the policy is a decision to be written down.
        return tuple(
            [
                f"cannot be rewritten ({reason}): write {_words(change)}"
                for change in missing
                if change.place
            ]
        )
    return (*[f"added {_words(change)}" for change in missing], f"as it was: {backup}")


def _missing(content: bytes) -> tuple[Insertion, ...]:
    if len(content) > _MAX_BYTES:
        return ()
    try:
        document: Json = orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return ()
    if not isinstance(document, dict):
        return ()
    found = [] if _AUTO_APPROVE.key in document else [_AUTO_APPROVE]
    security = document.get(INTERCEPTOR[0])
    interceptor = security.get(INTERCEPTOR[1]) if isinstance(security, dict) else None
    mode = migrated_mode(interceptor) if isinstance(interceptor, dict) else None
    if mode is not None:
        found.append(Insertion(INTERCEPTOR, "approvalPolicy", mode))
    return tuple(found)


def _words(change: Insertion) -> str:
    if not change.place:
        return f'"{change.key}", which is off'
    place = ".".join(change.place)
    return f'"{change.key}": "{change.value}" in {place}, which "approvalRequired" stood for'
