"""Migration of the configuration file of an older version.

Only the operator's own command, `config migrate`, writes: what an old file says has the same
meaning before and after. At every moment, whatever fails, the file is complete: the old or the new
one.
"""

import errno
import grp
import os
import pwd
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.config.clients.text_format import (
    JsonText,
    NotUnderstoodError,
    TablePath,
    table_at,
    with_first,
)
from ironcurtain_proxy.config.overlay_settings import migrated_mode
from ironcurtain_proxy.model.values import Json, object_of
from ironcurtain_proxy.private_files import make_private_directory, sync_directory

# --- rewriting


_MAX_BACKUPS: Final = 100
"""The largest number of copies in one second."""


def rewrite(file: Path, before: bytes, after: bytes, now: datetime) -> Path:
    """Replace the content `before` by `after`. Mode, owner and a symbolic link are kept.

    Returns:
        The copy: beside the file's own name, not beside what a link leads to, since that place is
        protected from the agent.

    Raises:
        OSError: it could not be written, or was changed meanwhile; the file is as it was, and
            there is no copy.
    """
    status = Path(os.path.realpath(file)).stat()
    backup = _backup(file, before, status, now)
    try:
        exchange(file, before, after)
    except OSError:
        backup.unlink(missing_ok=True)
        raise
    return backup


def exchange(file: Path, before: bytes, after: bytes) -> None:
    """Replace the content of a file as `rewrite` does, without a copy.

    Raises:
        OSError: as above.
    """
    real = Path(os.path.realpath(file))
    new = _written(real, after, real.stat())
    try:
        _refuse_if_changed(real, before)
        new.replace(real)
    finally:
        new.unlink(missing_ok=True)
    # The file is replaced already, so a file system without fsync of directories is no failure.
    sync_directory(real.parent)


def why_not_exchanged(file: Path) -> str:
    """Return why `exchange` would fail, as far as that can be told before; empty if it would not.

    A new file takes the owner and the group of the old one, which only they can give it.
    """
    real = Path(os.path.realpath(file))
    try:
        status = real.stat()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not os.access(real.parent, os.W_OK | os.X_OK):
        return f"cannot be replaced, because {real.parent} is not writable for you"
    if os.geteuid() == 0:
        return ""
    if status.st_uid != os.geteuid():
        return f"belongs to {_named(pwd.getpwuid, status.st_uid)}"
    if status.st_gid not in {os.getegid(), *os.getgroups()}:
        group = _named(grp.getgrgid, status.st_gid)
        return f"belongs to the group {group}, of which you are no member"
    return ""


def _named(look_up: Callable[[int], Sequence[object]], number: int) -> str:
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)


def create(file: Path, content: bytes) -> None:
    """Write a new file completely, for this user only; a file created meanwhile is kept.

    Raises:
        OSError: it could not be written. It names the file.
    """
    make_private_directory(file.parent)
    name = ""
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        # A link instead of a rename, which would replace a file that another process created.
        os.link(name, file)
    except OSError as error:
        error.filename = str(file)
        raise
    finally:
        if name:
            Path(name).unlink()


def _refuse_if_changed(real: Path, before: bytes) -> None:
    if real.read_bytes() != before:
        raise OSError(errno.EBUSY, "it was changed meanwhile")


def _written(real: Path, content: bytes, status: os.stat_result) -> Path:
    descriptor, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    return _filled(descriptor, Path(name), content, status)


def _backup(file: Path, content: bytes, status: os.stat_result, now: datetime) -> Path:
    stem = f"{file.name}.bak-{now:%Y%m%d%H%M%S}"
    for number in range(_MAX_BACKUPS):
        path = file.with_name(f"{stem}-{number}" if number else stem)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        return _filled(descriptor, path, content, status)
    raise FileExistsError(errno.EEXIST, "no name is left for a copy")


def _filled(descriptor: int, path: Path, content: bytes, status: os.stat_result) -> Path:
    """Write a new file with the mode and owner of another; remove it again on failure."""
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            own = os.fstat(descriptor)
            if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
                os.fchown(descriptor, status.st_uid, status.st_gid)
            # After the content, so that nobody else can use the file before it is complete.
            os.fchmod(descriptor, status.st_mode & 0o7777)
            os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path


# --- migration


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
    """The migrated text, or None if the keys cannot be inserted, as where an object stands
    twice."""
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
    # What `init` wrote is of no older version.
    found = [] if {_AUTO_APPROVE.key, "_preset"} & {*document} else [_AUTO_APPROVE]
    interceptor = object_of(document.get(INTERCEPTOR[0])).get(INTERCEPTOR[1])
    mode = migrated_mode(interceptor) if isinstance(interceptor, dict) else None
    if mode is not None:
        found.append(Insertion(INTERCEPTOR, "approvalPolicy", mode))
    return tuple(found)


def _words(change: Insertion) -> str:
    if not change.place:
        return f'"{change.key}", which is off'
    place = ".".join(change.place)
    return f'"{change.key}": "{change.value}" in {place}, which "approvalRequired" stood for'
