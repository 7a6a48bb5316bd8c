"""System calls on entries of two trees: by descriptor and name, following no link."""

import ctypes
import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.control_places.git_files import MOST_READ
from ironcurtain_proxy.private_files import closed_after, is_closed, opened_to_owner
from ironcurtain_proxy.transactions.changes import EntryIdentity

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DEEPEST: Final = 200
"""The most directories inside each other; each keeps two descriptors open."""
_NO_REPLACE, _EXCHANGE = 1, 2
_OWNED: Final = 0o700
_PART: Final = 1 << 18
_HANDLE_HEAD, _LARGEST_HANDLE = 8, 128
_BEFORE_HANDLE: Final = 21
"""The bytes of version, magic, length, flags and type, and of the file system's UUID."""
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_SET_SIGNAL: Final = 10
"""The order `F_SETSIG` of Linux."""
_WHOLE: Final = ctypes.c_int64(0)
_BEGIN_WRITING: Final = 2
DEFAULT_LIST: Final = "system.posix_acl_default"
ACCESS_LISTS: Final = frozenset({"system.posix_acl_access", DEFAULT_LIST})
"""The extended attributes that open an entry, or all that comes into a directory, to others."""
OVERLAY_ATTRIBUTE: Final = "user.overlay."
"""The beginning of the extended attributes in which an overlay keeps its own notes."""
ORIGIN: Final = f"{OVERLAY_ATTRIBUTE}origin"


_GRAIN_NS, _TICK_NS = 1000, 20_000_000
"""How exactly the kernel's clocks agree, and how old the time of a change may be at once."""


def identity(status: os.stat_result) -> EntryIdentity:
    """Return what identifies an entry."""
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    # Entries come and go in a directory that is a directory as before.
    mtime = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
    return EntryIdentity(status.st_ino, status.st_mode, size, mtime)


def look(directory: int, name: bytes) -> os.stat_result | None:
    """Return the status of an entry, or None if there is none."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextmanager
def below(above: int, path: bytes) -> Iterator[int]:
    """Open a directory below another one for the time of a block, one component at a time.

    Raises:
        OSError: a component is not there, is no directory, or is a link.
    """
    with ExitStack() as opened:
        for part in path.split(b"/") if path else ():
            above = opened.enter_context(directory(above, part))
        yield above


def move(source: int, name: bytes, target: int, new_name: bytes | None = None) -> None:
    """Rename an entry into another directory, where nothing of the new name may be.

    Raises:
        OSError: such as EEXIST.
    """
    _rename(source, name, target, name if new_name is None else new_name, _NO_REPLACE)


def exchange(source: int, name: bytes, target: int) -> None:
    """Let two entries of one name change places, in one step.

    Raises:
        OSError: one of them is not there.
    """
    _rename(source, name, target, name, _EXCHANGE)


def _rename(source: int, name: bytes, target: int, new_name: bytes, flags: int) -> None:
    with (
        open_to_owner(source),
        open_to_owner(target),
        opened_to_owner(source, name, (stat.S_IFDIR,)),
        opened_to_owner(target, new_name, (stat.S_IFDIR,)),
    ):
        if _LIBC.renameat2(source, name, target, new_name, flags) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fsdecode(name))


def flush(opened: Sequence[int]) -> None:
    """Bring opened files and directories to the disk.

    Raises:
        OSError: it cannot be written.
    """
    for one in opened:
        # So that the disk has all of them to write when the first is waited for.
        _LIBC.sync_file_range(one, _WHOLE, _WHOLE, _BEGIN_WRITING)
    for one in opened:
        os.fsync(one)


def flush_all(directory: int) -> None:
    """Bring all of a file system to the disk.

    Raises:
        OSError: it cannot be written.
    """
    if _LIBC.syncfs(directory) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def open_to_owner(directory: int) -> Iterator[None]:
    """Let the owner change the entries of a directory, whatever its mode."""
    mode = stat.S_IMODE(os.fstat(directory).st_mode)
    if mode & _OWNED == _OWNED:
        yield
        return
    os.fchmod(directory, mode | _OWNED)
    try:
        yield
    finally:
        os.fchmod(directory, mode)


def _opened_by_owner(directory: int, name: bytes, mode: int) -> int:
    """Open a directory of ours that may not be readable, and make it writable."""
    with closed_after(
        os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    ) as passed:
        os.chmod(f"/proc/self/fd/{passed}", mode | _OWNED)  # noqa: PTH101  a descriptor has no other way
        return os.open(f"/proc/self/fd/{passed}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


@contextmanager
def directory(parent: int, name: bytes) -> Iterator[int]:
    """Open a directory for the time of a block, readable or not where it is ours.

    Raises:
        OSError: it is not there, or no directory, or another user's and not readable.
    """
    with ExitStack() as held:
        try:
            opened = held.enter_context(closed_after(os.open(name, DIRECTORY, dir_fd=parent)))
            # Its names may be readable, and what they name not.
            os.stat(b".", dir_fd=opened)
        except PermissionError:
            held.enter_context(opened_to_owner(parent, name))
            opened = held.enter_context(closed_after(os.open(name, DIRECTORY, dir_fd=parent)))
        yield opened


def remove_tree(parent: int, name: bytes) -> None:
    """Remove a directory of ours, however deep and whatever modes the directories in it have.

    No file gets another mode: it may have a second name, outside. Each directory is moved to the
    top before it is emptied, so that no depth is too deep. Nobody else may write there.

    Raises:
        OSError: something cannot be removed.
    """
    moved = 0
    with closed_after(_opened_by_owner(parent, name, 0)) as top:
        while left := os.listdir(top):  # noqa: PTH208  of a descriptor
            for one in map(os.fsencode, left):
                if not _is_directory(top, one):
                    os.unlink(one, dir_fd=top)
                    continue
                with closed_after(_opened_by_owner(top, one, 0)) as opened:
                    for inner in map(os.fsencode, os.listdir(opened)):  # noqa: PTH208  as above
                        if _is_directory(opened, inner):
                            move(opened, inner, top, b"%d~" % moved)
                            moved += 1
                        else:
                            os.unlink(inner, dir_fd=opened)
                os.rmdir(one, dir_fd=top)
    os.rmdir(name, dir_fd=parent)


def _is_directory(parent: int, name: bytes) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def attribute(directory: int, name: bytes, one: str) -> bytes | None:
    """Return an extended attribute of an entry, or None if it has none of this name."""
    with suppress(OSError):
        return os.getxattr(_path(directory, name), one, follow_symlinks=False)
    return None


def inherits_list(directory: int) -> bool:
    """Return whether all that comes into an opened directory gets an access list of the user's."""
    with suppress(OSError):
        return DEFAULT_LIST in os.listxattr(directory)
    return False


def remove_attribute(directory: int, name: bytes, one: str) -> None:
    """Remove an extended attribute of an entry.

    Raises:
        OSError: it cannot be removed.
    """
    os.removexattr(_path(directory, name), one, follow_symlinks=False)


def _path(directory: int, name: bytes) -> bytes:
    return b"/proc/self/fd/%d/%s" % (directory, name)


def overlay_notes(directory: int, name: bytes) -> dict[str, bytes]:
    """Return the notes of the overlay on an entry, which are taken away, and its access lists."""
    path = _path(directory, name)
    found: dict[str, bytes] = {}
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return found
    for one in names:
        if one in ACCESS_LISTS:
            found[one] = os.getxattr(path, one, follow_symlinks=False)
        elif one.startswith(OVERLAY_ATTRIBUTE):
            with suppress(OSError), opened_to_owner(directory, name):
                found[one.removeprefix(OVERLAY_ATTRIBUTE)] = os.getxattr(
                    path, one, follow_symlinks=False
                )
                os.removexattr(path, one, follow_symlinks=False)
    return found


def is_same_content(new: int, old: int, name: bytes, mode: int) -> bool:
    """Return whether a file or link is the same in two directories, attributes included.

    Raises:
        OSError: one of them cannot be read.
    """
    if stat.S_ISREG(mode) and not mode & stat.S_IRUSR:
        # Its owner does not read it either, and it takes no harm.
        return False
    paths = [_path(one, name) for one in (new, old)]
    noted = [
        {
            one: os.getxattr(path, one, follow_symlinks=False)
            for one in os.listxattr(path, follow_symlinks=False)
        }
        for path in paths
    ]
    if noted[0] != noted[1]:
        return False
    if stat.S_ISLNK(mode):
        return os.readlink(name, dir_fd=new) == os.readlink(name, dir_fd=old)
    with ExitStack() as opened:
        both = [os.open(name, READ, dir_fd=one) for one in (new, old)]
        for one in both:
            opened.callback(os.close, one)
        while part := os.read(both[0], _PART):
            if part != os.read(both[1], _PART):
                return False
        return not os.read(both[1], 1)


def is_written(directory: int, name: bytes) -> bool:
    """Return whether any process has a file open, or mapped, to write into it.

    The kernel grants a lease for reading only where nobody does.
    """
    with suppress(OSError), closed_after(os.open(name, READ, dir_fd=directory)) as opened:
        try:
            # Whoever opens it now lets the kernel tell us, by a signal that does nothing.
            fcntl.fcntl(opened, _SET_SIGNAL, signal.SIGURG)
            fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return True
    return False


def handle(directory: int, name: bytes) -> bytes:
    """Return the kernel's own name of an entry, as an overlay notes it; or nothing."""
    given = ctypes.create_string_buffer(_HANDLE_HEAD + _LARGEST_HANDLE)
    ctypes.c_uint.from_buffer(given).value = _LARGEST_HANDLE
    mount = ctypes.c_int()
    if _LIBC.name_to_handle_at(directory, name, given, ctypes.byref(mount), 0) != 0:
        return b""
    length = ctypes.c_uint.from_buffer(given).value
    return given.raw[_HANDLE_HEAD : _HANDLE_HEAD + length]


def handle_in(origin: bytes) -> bytes:
    """Return the kernel's own name of an entry from what an overlay noted as its origin."""
    return origin[_BEFORE_HANDLE:]


def booted_ns() -> int:
    """Return when the machine started, by the clock as it is set now."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def boot() -> str:
    """Return the kernel's name of this start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def sure_time(started_ns: int, booted_before_ns: int) -> int:
    """Return a time that no change since the start is before, also if the clock was set back.

    It is the start, or earlier by as much as the clock was set back. A pause between the two
    readings makes the first one too early, and this one too late: never a doubt.
    """
    running = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    back_ns = booted_before_ns - (time.time_ns() - running)
    return started_ns if back_ns <= _GRAIN_NS else started_ns - back_ns - _TICK_NS


def newest_change(
    parent: int, name: bytes, *, moved: Collection[int] = (), deepest: int = DEEPEST
) -> int:
    """Return when anything in a tree last changed, the top of the tree itself left out.

    Args:
        parent: the opened directory that the tree is in.
        name: the tree's name.
        moved: inodes that we renamed. Each may have another name, which is in this tree, so that
            only the time of its content counts, as of what we had to open for a moment.
        deepest: how deep the tree may be.

    Raises:
        OSError: a part of it cannot be read, or it is too deep (ELOOP).
    """
    if deepest <= 0:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(name))
    newest = 0
    with directory(parent, name) as opened, os.scandir(opened) as found:
        for entry in found:
            status = entry.stat(follow_symlinks=False)
            is_ours = status.st_ino in moved or is_closed(status.st_mode)
            newest = max(newest, status.st_mtime_ns if is_ours else status.st_ctime_ns)
            if stat.S_ISDIR(status.st_mode):
                below = newest_change(
                    opened, os.fsencode(entry.name), moved=moved, deepest=deepest - 1
                )
                newest = max(newest, below)
    return newest


def copy(source: int, target: int) -> None:
    """Copy what a file holds, and leave its holes."""
    end, place = os.fstat(source).st_size, 0
    while place < end:
        try:
            start = os.lseek(source, place, os.SEEK_DATA)
        except OSError:
            break  # nothing but a hole follows
        place = os.lseek(source, start, os.SEEK_HOLE)
        while start < place:
            part = os.pread(source, min(_PART, place - start), start)
            if not part:
                break
            start += os.pwrite(target, part, start)
    os.ftruncate(target, end)


def content(directory: int, name: bytes) -> bytes:
    """Return what a regular file holds.

    Raises:
        OSError: it is not there, another kind of file, or too large.
    """
    with closed_after(os.open(name, READ, dir_fd=directory)) as opened:
        return content_of(opened)


def content_or_none(directory: int | None, name: bytes) -> bytes | None:
    """Return what a regular file holds, or None where it cannot be read or there is none."""
    with suppress(OSError):
        return None if directory is None else content(directory, name)
    return None


def target(directory: int, name: bytes) -> str:
    """Return where a link leads, or nothing if it is none."""
    with suppress(OSError):
        return os.fsdecode(os.readlink(name, dir_fd=directory))
    return ""


def content_of(opened: int) -> bytes:
    """Return what an opened regular file holds, from its beginning.

    Raises:
        OSError: it is another kind of file, or too large.
    """
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_READ:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    with os.fdopen(os.dup(opened), "rb") as file:
        file.seek(0)
        return file.read()


def inside(above: int, name: bytes, deepest: int = DEEPEST) -> Iterator[bytes]:
    """Yield what a tree holds but directories, by the paths below it."""
    with directory(above, name) as opened, os.scandir(opened) as found:
        for entry in sorted(found, key=lambda entry: entry.name):
            path = os.fsencode(entry.name)
            if deepest and entry.is_dir(follow_symlinks=False):
                yield from (path + b"/" + one for one in inside(opened, path, deepest - 1))
            else:
                yield path
