"""Migration of the configuration file of an older version.

Only the operator's own command, `config migrate`, writes: what an old file says has the same
meaning before and after.
"""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.config.clients.json_text import JsonText, with_first
from ironcurtain_proxy.config.clients.text_format import NotUnderstoodError, TablePath, table_at
from ironcurtain_proxy.config.migration.legacy_switch import migrated_mode
from ironcurtain_proxy.config.migration.rewriting import rewrite
from ironcurtain_proxy.model.json import Json


class Insertion(Struct, frozen=True):
    """A member to be inserted."""

    place: TablePath
    """The keys that lead to the member's object; `()`: the document."""
    key: str
    value: Json


def inserted(before: bytes, insertions: Sequence[Insertion]) -> bytes | None:
    """Return the text with the members inserted, each as the first one of its object.

    None: the text is no JSON, an object does not exist, or a key is taken. The new text holds
    the old data and the insertions, and nothing else.
    """
    form = JsonText()
    try:
        text = before.decode()
        document = form.parse(text)
        for insertion in insertions:
            there = table_at(document, insertion.place)
            if there is None or insertion.key in there:
                return None
            text = with_first(text, insertion.place, insertion.key, insertion.value)
            there[insertion.key] = insertion.value
        return text.encode() if form.parse(text) == document else None
    except (UnicodeDecodeError, NotUnderstoodError):
        return None


INTERCEPTOR: Final = ("security", "interceptor")
_AUTO_APPROVE: Final = Insertion(
    (), "autoApprove", {"enabled": False, "modelId": "anthropic:claude-haiku-4-5"}
)
_MAX_BYTES: Final = 4 * 1024 * 1024


class MigrationPlan(Struct, frozen=True, kw_only=True):
    """The missing keys of a file, and the file with these keys."""

    file: Path
    before: bytes
    after: bytes | None
    """The migrated text; None: the keys cannot be inserted, as where an object stands twice."""
    missing: tuple[Insertion, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The additions, one line for each."""
        return tuple([_words(change) for change in self.missing])


class MigrationResult(Struct, frozen=True, kw_only=True):
    """The result of a migration."""

    was_written: bool
    lines: tuple[str, ...]
    """Lines for the operator."""


def plan_of(file: Path) -> MigrationPlan | None:
    """Return the additions for a file of an older version: the policy, and the LLM approver, off.

    None: the file needs none, is no JSON, or does not exist.
    """
    try:
        before = Path(os.path.realpath(file)).read_bytes()
    except OSError:
        return None
    missing = _missing(before)
    if not missing:
        return None
    return MigrationPlan(file=file, before=before, after=inserted(before, missing), missing=missing)


def migrate(plan: MigrationPlan, now: datetime) -> MigrationResult:
    """Insert the missing keys atomically, and keep a copy of the old file beside it.

    Args:
        plan: of a file that was read and found right already.
        now: for the name of the copy.
    """
    if plan.after is None:
        return _by_hand(plan, "the same key occurs twice in it")
    try:
        backup = rewrite(plan.file, plan.before, plan.after, now)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else "not possible"
        return _by_hand(plan, reason)
    lines = (*[f"added {words}" for words in plan.words], f"as it was: {backup}")
    return MigrationResult(was_written=True, lines=lines)


def _by_hand(plan: MigrationPlan, reason: str) -> MigrationResult:
    lines = tuple([f"cannot be rewritten ({reason}): write {words}" for words in plan.words])
    return MigrationResult(was_written=False, lines=lines)


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
