"""Opening an audit log: it is locked, checked, repaired if needed, and its chain continued.

Theory of operation: everything here happens once, before the first call.

    lock ── open ── is it ours? ── torn last line? ── chain ── head file ── sync
     │                                 │                │
     └ taken: use `NAME.<pid>`         └ moved to a     └ continues at the last line of the log,
                                         file of its      of a rotated log, or of the head file
                                         own

A process that was killed can leave half a line; it is moved to a file beside the log, so that the
log holds complete lines only. The head file names the last line that was synced. If the log ends
before that line, lines were cut off: the chain then continues from the head file's line, so that
`verify` shows the gap for ever. Continuing from the last remaining line would hide the cut.
"""

import errno
import os
import stat
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.audit.files import (
    FULL,
    MAX_LINE,
    head_path,
    last_place,
    lock_path,
    placed,
    read_head_file,
    rotated_paths,
    write_head,
)
from ironcurtain_proxy.audit.records import GENESIS, Link
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.private_files import locked_file, make_private_directory, sync_directory

_PRIVATE: Final = 0o600
_LOCK_ATTEMPTS: Final = 5
_LOCK_PAUSE: Final = 0.02
LOG_FLAGS: Final = (
    os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
)
"""No link is followed, and a pipe in the log's place does not block."""


class OpenedLog(Struct, frozen=True, kw_only=True):
    """A log that only this process may write."""

    path: Path
    """The file in use: it ends in `.<pid>` if another process holds the configured log."""
    file: int
    """Descriptor of the log, open for appending."""
    lock: int
    """The descriptor of the lock file; to close it releases the log."""
    size: int
    """Bytes, all of them complete lines."""
    last: Link
    """The last line, which the next one continues."""
    notices: tuple[str, ...]
    """Messages for the operator, one sentence each."""


def open_log(path: Path, *, is_shared: bool = False) -> OpenedLog:
    """Open or create a log.

    Args:
        path: where it is.
        is_shared: whether another process may hold the log: then no wait and no warning.

    Raises:
        ConfigurationError: it cannot be written, or is not a file of ours.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow links
    try:
        _refuse_what_is_not_a_file(path)
        make_private_directory(path.parent)
        path, lock, notices = _lock(path, is_shared=is_shared)
        try:
            return _open_locked(path, lock, notices)
        except BaseException:
            os.close(lock)
            raise
    except OSError as error:
        raise ConfigurationError(_unusable(path, error)) from error


def refuse_unusable(path: Path) -> None:
    """Check whether a log could be opened, without leaving a file behind.

    Raises:
        ConfigurationError: it could not, as far as can be seen beforehand.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow links
    try:
        _refuse_what_is_not_a_file(path)
        _refuse_unwritable(path)
    except OSError as error:
        raise ConfigurationError(_unusable(path, error)) from error


def _refuse_unwritable(path: Path) -> None:
    """Raise the error that opening the log and its lock would raise."""
    beside, place = lock_path(path), nearest_existing(path.parent)
    numbers = (
        (errno.ENOTDIR, not place.is_dir()),
        (errno.ELOOP, beside.is_symlink()),
        (errno.EISDIR, beside.is_dir()),
        (errno.EACCES, not all(os.access(one, os.W_OK) for one in (path, beside) if one.exists())),
    )
    for number, holds in numbers:
        if holds:
            raise OSError(number, os.strerror(number))
    if path.exists():
        _refuse_of_others(path, path.stat())
    try_writing(place)


def try_writing(directory: Path) -> None:
    """Write a temporary file without a name, because permissions alone do not show that it works.

    Raises:
        OSError: the directory cannot be written.
    """
    with tempfile.TemporaryFile(dir=directory, prefix=".ironcurtain-") as file:
        file.write(b".")
        file.flush()


def nearest_existing(place: Path) -> Path:
    """Return the path itself, or its nearest existing parent."""
    return next((one for one in (place, *place.parents) if os.path.lexists(one)), Path("/"))


def open_new(path: Path) -> int:
    """Create the next file of a log, which must not exist.

    Raises:
        OSError: it does, or it cannot be created.
    """
    file = os.open(path, LOG_FLAGS | os.O_EXCL, _PRIVATE)
    try:
        sync_directory(path.parent)
    except OSError:
        os.close(file)
        path.unlink()
        raise
    return file


def _unusable(path: Path, error: OSError) -> str:
    if error.errno in {errno.ELOOP, errno.EMLINK}:
        what = "is a symbolic link"
    elif error.errno == errno.ENXIO:
        what = "is a pipe or a device, not a file"
    else:
        what = f"cannot be written: {error.strerror or error}"
    return f"audit log {path} {what}; {_remedy(error)}"


def _remedy(error: OSError) -> str:
    return "make space on its disk" if error.errno in FULL else _OTHER_PATH


_OTHER_PATH: Final = "set AUDIT_LOG_PATH to a file that this user can write"


def _refuse_what_is_not_a_file(path: Path) -> None:
    """Refuse a device such as `/dev/null` before a lock file is created beside it."""
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise ConfigurationError(_unusable(path, OSError(errno.ELOOP, "")))
        if not stat.S_ISREG(mode):
            raise ConfigurationError(f"audit log {path} is not a regular file; {_OTHER_PATH}")


def _lock(path: Path, *, is_shared: bool) -> tuple[Path, int, list[str]]:
    lock = locked_file(lock_path(path))
    for _ in range(0 if is_shared else _LOCK_ATTEMPTS):
        if lock is not None:
            break
        # The proxy that this one replaces may be about to end.
        time.sleep(_LOCK_PAUSE)
        lock = locked_file(lock_path(path))
    if lock is not None:
        return path, lock, []
    own = path.with_name(f"{path.name}.{os.getpid()}")
    lock = locked_file(lock_path(own))
    if lock is None:
        raise ConfigurationError(
            f"audit logs {path} and {own} are both in use; set AUDIT_LOG_PATH to another file"
        )
    said = f"audit log {path} is in use by another process; writing {own} instead"
    return own, lock, [] if is_shared else [said]


def _open_locked(path: Path, lock: int, notices: list[str]) -> OpenedLog:
    file = os.open(path, LOG_FLAGS, _PRIVATE)
    try:
        _check_ours(path, file)
        notices += _repair(path, file)
        last, warning = _take_up_chain(path)
        _begin_head(path, last)
        sync_directory(path.parent)
        size = os.fstat(file).st_size
    except BaseException:
        os.close(file)
        raise
    if warning:
        notices.append(warning)
    return OpenedLog(path=path, file=file, lock=lock, size=size, last=last, notices=tuple(notices))


def _refuse_of_others(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"audit log {path} is not a regular file; {_OTHER_PATH}")
    if os.geteuid() not in (found.st_uid, 0):
        raise ConfigurationError(
            f"audit log {path} belongs to another user, who could rewrite it; {_OTHER_PATH}"
        )


def _check_ours(path: Path, file: int) -> None:
    found = os.fstat(file)
    _refuse_of_others(path, found)
    if stat.S_IMODE(found.st_mode) != _PRIVATE:
        os.fchmod(file, _PRIVATE)


# --- repair --------------------------------------------------------------------------------------


def _repair(path: Path, file: int) -> list[str]:
    """Repair what a crash during a write left behind. The caller holds the lock."""
    size = os.fstat(file).st_size
    whole = _end_of_last_line(file, size)
    if whole == size:
        return []
    torn = _TornLine(whole, size - whole)
    if torn.length <= MAX_LINE:
        line = os.pread(file, torn.length, whole)
        place = placed(line)
        if place is not None and place.seq and place.prev:
            os.write(file, b"\n")
            os.fsync(file)
            return [
                f"audit log {path}: the last line was complete but for its end, which was added"
            ]
    kept = _set_aside(path, file, torn)
    os.ftruncate(file, whole)
    os.fsync(file)
    what = f"its {torn.length} bytes were moved to {kept}"
    return [f"audit log {path}: a crash cut the last line off; {what}"]


class _TornLine(Struct, frozen=True):
    start: int
    length: int


def _end_of_last_line(file: int, size: int) -> int:
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


_BLOCK: Final = 64 * 1024


def _set_aside(path: Path, file: int, torn: _TornLine) -> Path:
    """Copy the torn bytes to a separate file, for an auditor."""
    when = datetime.fromtimestamp(os.fstat(file).st_mtime, UTC)
    name = f"{path.name}.torn-{when:%Y%m%dT%H%M%SZ}"
    kept = path.with_name(name)
    number = 1
    while os.path.lexists(kept):
        number += 1
        kept = path.with_name(f"{name}-{number}")
    copy = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
    with os.fdopen(copy, "wb") as out:
        for start in range(torn.start, torn.start + torn.length, _BLOCK):
            out.write(os.pread(file, min(_BLOCK, torn.start + torn.length - start), start))
        out.flush()
        os.fsync(out.fileno())
    return kept


# --- the chain -----------------------------------------------------------------------------------


def _begin_head(path: Path, last: Link) -> None:
    """Write a head file before the first line, so that a log is complete from its first line on."""
    try:
        write_head(path, last, lasting=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigurationError(
            f"audit head file {head_path(path)} cannot be written: {why}; {_remedy(error)}"
        ) from error


def _take_up_chain(path: Path) -> tuple[Link, str | None]:
    """Return the line that the next one continues.

    INVARIANT: if the head file names a line that is missing, the chain continues from that line,
    and `verify` shows the gap for ever. To continue from the last remaining line would hide it. The
    same holds for lines that follow the one with which the last process closed the log.
    """
    places = map(last_place, [path, *reversed(rotated_paths(path))])
    found = next((place for place in places if place is not None), GENESIS)
    try:
        known = read_head_file(path)
    except ValueError:
        return found, f"audit head file {head_path(path)} cannot be read and will be written anew"
    if known is None and found.seq > 0:
        return found, f"audit log {path} has no head file: whether lines were cut off is not known"
    head = GENESIS if known is None else known.link
    if known is not None and known.closed and head.seq < found.seq:
        return head, (
            f"audit log {path} goes on after line {head.seq}, with which it was closed: somebody"
            " else added lines; `ironcurtain-proxy audit verify` tells which"
        )
    if head.seq == 0 or head.seq < found.seq or head == found:
        return found, None
    return head, (
        f"audit log {path} does not end with line {head.seq} as its head file says: lines were cut"
        " off or changed; `ironcurtain-proxy audit verify` tells which"
    )
