"""Where snapshots lie: one directory each, for this user alone.

<id>/manifest.json   what was held; written last: without it there is no snapshot
<id>/after.json      what the call left
<id>/restoring.json  what a rollback found that has not ended yet
<id>/running         is locked while the call is under way
<id>/blobs/          content of files, each under its digest
<id>/repository/     a bare repository of our own, with the work tree as a commit
"""

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.snapshots.contents import sync_directory, write_all
from ironcurtain_proxy.snapshots.faults import NoSnapshotError, RollbackError, SnapshotError

MANIFEST: Final = "manifest.json"
AFTER: Final = "after.json"
RESTORING: Final = "restoring.json"
ANCHORED: Final = "anchored"
BLOBS: Final = "blobs"
REPOSITORY: Final = "repository"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", re.ASCII)
"""Also the end of a name of a ref."""
_PRIVATE_DIRECTORY: Final = 0o700
_PRIVATE: Final = 0o600
_LARGEST: Final = 256 << 20
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def new_place(identifier: str, directory: Path) -> Iterator[Path]:
    """A new directory for one snapshot, for this process alone until the end of the block.

    Raises:
        SnapshotError: there is one already, or the id cannot be one.
        OSError: it cannot be made.
    """
    if _ID.fullmatch(identifier) is None:
        raise SnapshotError("this call has an id that no snapshot can have")
    directory.mkdir(_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    _own(directory)
    place = directory / identifier
    with ExitStack() as stack:
        # Else it could be taken for the remains of one that was killed: see `locked_remains`.
        with locked(directory):
            try:
                place.mkdir(_PRIVATE_DIRECTORY)
            except FileExistsError:
                raise SnapshotError("this call has a snapshot already") from None
            stack.enter_context(locked(place))
        empty_place(place)
        yield place


def empty_place(place: Path) -> None:
    """Begin again in it.

    Raises:
        OSError: that cannot be done.
    """
    for name in (BLOBS, REPOSITORY):
        shutil.rmtree(place / name, ignore_errors=True)
    (place / BLOBS).mkdir(_PRIVATE_DIRECTORY)


def _own(directory: Path) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise SnapshotError("the directory of snapshots is not ours")
    if stat.S_IMODE(found.st_mode) & 0o077:
        directory.chmod(_PRIVATE_DIRECTORY)


def complete_ids(directory: Path) -> list[str]:
    """The snapshots that can be used, by name."""
    return [name for name in all_ids(directory) if (directory / name / MANIFEST).is_file()]


def all_ids(directory: Path) -> list[str]:
    """All of them, also those whose taking was cut short."""
    try:
        names = os.listdir(directory)  # noqa: PTH208  names are wanted
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if _ID.fullmatch(name))


def place_of(identifier: str, directory: Path) -> Path:
    """The directory of one complete snapshot.

    Raises:
        NoSnapshotError: there is none.
    """
    if identifier not in complete_ids(directory):
        raise NoSnapshotError(f"there is no snapshot {identifier!r}")
    return directory / identifier


@contextmanager
def locked(place: Path, *, wait: bool = True) -> Iterator[bool]:
    """Have a snapshot for this process alone. Gives whether it is; without `wait` it may not be."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


@contextmanager
def locked_remains(place: Path) -> Iterator[bool]:
    """As `locked`, without waiting, for what has no manifest: it may be about to be begun."""
    with ExitStack() as stack:
        with locked(place.parent, wait=False) as still:
            alone = still and stack.enter_context(locked(place, wait=False))
        yield alone


def write_file(place: Path, name: str, raw: bytes) -> None:
    """Write a file of ours, whole or not at all, so that it outlives a crash.

    Raises:
        OSError: it could not be written.
    """
    temporary = place / f".{name}.tmp"
    descriptor = os.open(temporary, _CREATE, _PRIVATE)
    try:
        write_all(descriptor, raw)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(place / name)
    sync_directory(place)


def read_file(place: Path, name: str) -> bytes | None:
    """What is in such a file; None: it is not there.

    Raises:
        RollbackError: it is not a file of ours.
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(place / name, _READ)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise RollbackError(f"{place / name}: is not a file of ours")
        if found.st_size > _LARGEST:
            raise RollbackError(f"{place / name}: is too large")
        return file.read()


def remove_file(place: Path, name: str) -> None:
    """Remove it, if it is there."""
    with suppress(FileNotFoundError):
        (place / name).unlink()


def remove_place(place: Path) -> None:
    """Remove a snapshot: the manifest first, so that half of it is never taken for all."""
    with suppress(OSError):
        remove_file(place, MANIFEST)
    shutil.rmtree(place, ignore_errors=True)


def size_of(place: Path) -> int:
    """Bytes that a snapshot takes on the disk."""
    total = 0
    for directory, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                total += os.lstat(f"{directory}/{name}").st_size
    return total
