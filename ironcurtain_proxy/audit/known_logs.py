"""All logs of a user: those beside the configured one, and those in other places.

A second proxy finds the log in use and writes its own log `audit.jsonl.4711`, with its own chain.
The commands read all logs of such a family, so that no user has to know which one has a call.

The list of logs: each proxy adds its log at its start.

A log's path may be set in one client's environment only, which other commands cannot see. So one
small file for each log, `~/.ironcurtain/audit-logs/DIGEST`, holds the path, and the place of the
last line when a proxy last started or ended there: a log that is removed, or replaced by an older
copy of itself and its head file, is missed. The path is read only if it names a log of this user,
with the lock file of a proxy beside it.
"""

import glob
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.audit.files import (
    head_of,
    head_path,
    head_text,
    lock_path,
    names_in,
    read_head,
    rotated_paths,
)
from ironcurtain_proxy.audit.records import GENESIS, Link
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import lazy
from ironcurtain_proxy.private_directory import MailboxDirectory, UnacceptableFileError

_MEMBER: Final = lazy(r"(?:\.([1-9]\d{0,9}))?(?:\.0\d{5})?")
_NUMBER: Final = lazy(
    r"(?:([1-9]\d{0,9}|x[0-9a-f]{3,32}(?:\.[1-9]\d{0,9})?):)?(\d{1,18})", re.ASCII
)


class Member(Struct, frozen=True):
    """One log with its rotated files."""

    path: Path
    process: str = ""
    """The client of a log that stands beside the named one: its process, `4711`. For a log in
    another place: `x3f2`, `x3f2.4711`."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it lies in another place than the named one."""
        return self.process.startswith("x")

    def changed(self) -> float:
        """Return the time of the last write to one of its files, in seconds since 1970."""
        times = []
        for path in (self.path, *rotated_paths(self.path)[-1:]):
            try:
                times.append(path.stat().st_mtime)
            except FileNotFoundError:
                continue
        return max(times, default=0.0)


def family(log: Path) -> tuple[Member, ...]:
    """Return the log itself and those beside it, by the numbers of their processes.

    Raises:
        OSError: the directory cannot be read.
    """
    found: set[str] = set()
    for name in names_in(log.parent):
        member = _MEMBER.fullmatch(name, len(log.name)) if name.startswith(log.name) else None
        if member is not None:
            found.add(member[1] or "")
    others = sorted(found - {""}, key=int)
    own = [Member(log)] if "" in found or not others else []
    return (*own, *[Member(log.with_name(f"{log.name}.{one}"), one) for one in others])


def is_member(path: Path, log: Path) -> bool:
    """Return whether a path is a log itself, or one of another process beside it."""
    return path.name.startswith(log.name) and bool(_MEMBER.fullmatch(path.name, len(log.name)))


def read_number(text: str) -> tuple[str | None, int] | None:
    """Read a line's number: the label of its log (None if it has none) and the number."""
    found = _NUMBER.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


def newest_first(members: tuple[Member, ...]) -> Iterator[tuple[Member, float]]:
    """Yield the logs with the time of their last change."""
    timed = [(member, member.changed()) for member in members]
    yield from sorted(timed, key=lambda one: one[1], reverse=True)


DIRECTORY: Final = "audit-logs"
MOST_LOGS: Final = 100
"""The largest number of notes; a new note replaces the oldest."""
_BEING_WRITTEN: Final = 60 * 10**9
"""Nanoseconds for which another proxy's temporary file is left alone."""
_LONGEST_NOTE: Final = 4096 + 200
_SHORTEST_LABEL: Final = 3
_FULL_LABEL: Final = 32


def note_log(state: Path, log: Path) -> None:
    """Add a log to the list with its last line. Logs that no longer exist are missed from then on.

    Raises:
        OSError: the note cannot be written.
        ConfigurationError: the directory for it cannot be used.
    """
    path = os.fsencode(os.path.realpath(log))
    notes = MailboxDirectory.open(state / DIRECTORY, create=True)
    try:
        own = _digest(path)
        notes.write(own, b"%b\0%b" % (path, head_text(_last_line(log))))
        kept = []
        for name in notes.names():
            noted = _read(notes, name)
            is_log = noted is not None and (
                name == own or noted.last is not None or _is_there(noted.log)
            )
            if is_log and (found := notes.modified_ns(name)) is not None:
                kept.append((name == own, found[1], name))
            elif not _is_being_written(notes, name, own):
                notes.discard_ours(name)
        for _, _, name in sorted(kept)[:-MOST_LOGS]:
            notes.discard_ours(name)
    finally:
        notes.close()


def _last_line(log: Path) -> Link:
    with suppress(OSError, ValueError):
        return read_head(log) or GENESIS
    return GENESIS


def noted_lines(state: Path) -> Mapping[str, Link]:
    """Return the last line of each log when a proxy last started or ended there, by real path."""
    return {
        os.path.realpath(one.log): one.last for _, one in _all_noted(state) if one.last is not None
    }


def missing_logs(log: Path, state: Path) -> tuple[Path, ...]:
    """Return the logs of which no file with records is left: noted ones, and those with a head.

    Args:
        log: the user's log; a head file of its family tells of a log, too.
        state: the directory with the list.
    """
    noted = [one.log for _, one in _all_noted(state) if one.last is not None]
    headed = [head.with_suffix("") for head in log.parent.glob(f"{glob.escape(log.name)}*.head")]
    own = [one for one in headed if is_member(one, log)]
    gone = {os.path.realpath(one): one for one in (*noted, *own) if not _exists(Member(one))}
    return tuple(sorted(gone.values()))


def forget_log(state: Path, log: Path) -> bool:
    """Remove a log from the list, and the head file of one that is gone.

    Returns False if there was neither.

    Raises:
        OSError: the note cannot be removed.
        ConfigurationError: the directory cannot be used.
    """
    notes = MailboxDirectory.open(state / DIRECTORY, create=True)
    try:
        name = _digest(os.fsencode(os.path.realpath(log)))
        is_noted = _read(notes, name) is not None
        notes.discard_ours(name)
    finally:
        notes.close()
    with suppress(ValueError):
        if read_head(log) is not None and not _exists(Member(log)):
            head_path(log).unlink()
            return True
    return is_noted


def all_logs(log: Path, state: Path) -> tuple[Member, ...]:
    """Return a log with its family, and all listed logs that can be read.

    Raises:
        OSError: the directory of the log itself cannot be read.
    """
    others = dict(_noted(state))
    others.pop(_digest(os.fsencode(os.path.realpath(log))), None)
    labels = _labels(others)
    own = family(log)
    known = {os.path.realpath(member.path) for member in own}
    found: list[Member] = []
    for digest, other in sorted(others.items(), key=lambda one: one[1]):
        with suppress(OSError):
            for member in family(other):
                paths = (member.path, *rotated_paths(member.path))
                if os.path.realpath(member.path) not in known and all(map(_is_ours, paths)):
                    process = f".{member.process}" if member.process else ""
                    found.append(replace(member, process=f"{labels[digest]}{process}"))
                    known.add(os.path.realpath(member.path))
    # The first log is only the default: it may be missing where there are others.
    return tuple(found) if found and not _exists(own[0]) else (*own, *found)


class _Note(Struct, frozen=True):
    log: Path
    last: Link | None
    """None: an earlier version of the program wrote the note."""


def _noted(state: Path) -> Iterator[tuple[str, Path]]:
    for name, noted in _all_noted(state):
        if _is_there(noted.log):
            yield name, noted.log


def _all_noted(state: Path) -> Iterator[tuple[str, _Note]]:
    try:
        notes = MailboxDirectory.open(state / DIRECTORY, create=False)
    except (OSError, ConfigurationError):
        return
    try:
        for name in sorted(notes.names())[: 2 * MOST_LOGS]:
            noted = _read(notes, name)
            if noted is not None:
                yield name, noted
    finally:
        notes.close()


def _read(notes: MailboxDirectory, name: str) -> _Note | None:
    """Return what a note says, or None if the file is not a note."""
    try:
        path, _, last = notes.read(name, _LONGEST_NOTE).partition(b"\0")
    except (OSError, UnacceptableFileError):
        return None
    if not path.startswith(b"/") or name != _digest(path):
        return None
    with suppress(ValueError):
        return _Note(Path(os.fsdecode(path)), head_of(last).link if last else None)
    return None


def _is_being_written(notes: MailboxDirectory, name: str, own: str) -> bool:
    """Return whether another proxy, that starts now, is about to give this file its name."""
    found, ours = notes.modified_ns(name), notes.modified_ns(own)
    is_new = found is not None and ours is not None and found[1] > ours[1] - _BEING_WRITTEN
    return is_new and name.startswith(".")


def _digest(path: bytes) -> str:
    return hashlib.sha256(path).hexdigest()[:_FULL_LABEL]


def _is_there(log: Path) -> bool:
    return _is_ours(lock_path(log)) and (_is_ours(log) or _has_others(log))


def _has_others(log: Path) -> bool:
    with suppress(OSError):
        return any(_is_ours(one.path) for one in family(log)) or bool(rotated_paths(log))
    return False


def _exists(member: Member) -> bool:
    with suppress(OSError):
        return bool(member.path.exists() or rotated_paths(member.path))
    return True


def _is_ours(path: Path) -> bool:
    """Return whether this is a regular, readable file of this user."""
    try:
        found = path.lstat()
    except (OSError, ValueError):
        return False
    is_file = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return is_file and os.access(path, os.R_OK)


def _labels(others: Mapping[str, Path]) -> Mapping[str, str]:
    """Return a short name for each log: `x3f2`, longer where two would be the same."""
    for length in range(_SHORTEST_LABEL, _FULL_LABEL):
        if len({digest[:length] for digest in others}) == len(others):
            break
    return {digest: f"x{digest[:length]}" for digest in others}
