"""Files of this user, by path: a lock that one process holds, and a file that is written whole.

Knows nothing of what the files say.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError

PRIVATE: Final = 0o600
_LOCK_PAUSE: Final = 0.005
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

Stamp: TypeAlias = tuple[int, ...]
"""A value that changes when a file is replaced or written, or empty if there is no file."""


def stamp_of(found: os.stat_result) -> Stamp:
    """Return the stamp of a file, from its `stat`."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def locked_file(path: Path) -> int | None:
    """Lock a file, made if it is not there.

    Returns:
        Its descriptor, not inherited by other programs; None if another process holds it.

    Raises:
        OSError: it cannot be opened.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its holder may have removed it between our open and our lock: a lock on a file that
            # nobody else can find keeps nobody out.
            if is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def closed_after(descriptor: int) -> Iterator[int]:
    """Close an opened file or directory after a block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_closed(mode: int) -> bool:
    """Return whether the owner of a file or directory of this mode cannot read it."""
    needed = stat.S_IRUSR | stat.S_IXUSR if stat.S_ISDIR(mode) else stat.S_IRUSR
    return mode & needed != needed


@contextmanager
def opened_to_owner(
    directory: int, name: str | bytes, kinds: Collection[int] = (stat.S_IFDIR, stat.S_IFREG)
) -> Iterator[None]:
    """Let the owner of an entry read, note and move it, whatever its mode.

    To move a directory changes its entry `..`, for which it has to be writable.
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        yield
        return
    mode = stat.S_IMODE(status.st_mode)
    needed = stat.S_IRWXU if stat.S_ISDIR(status.st_mode) else PRIVATE
    if (
        stat.S_IFMT(status.st_mode) not in kinds
        or mode & needed == needed
        or status.st_uid != os.geteuid()
    ):
        yield
        return
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    # Only its owner can do this, and only root owns what root's sandbox does not.
    with closed_after(os.open(name, flags, dir_fd=directory)) as passed:
        # Somebody may have put another entry there since it was looked at.
        mode = stat.S_IMODE(os.fstat(passed).st_mode)
        os.chmod(f"/proc/self/fd/{passed}", mode | needed)  # noqa: PTH101  a descriptor has no other way
        try:
            yield
        finally:
            os.chmod(f"/proc/self/fd/{passed}", mode)  # noqa: PTH101  as above


@contextmanager
def held_lock(path: Path, seconds: float, busy: Exception) -> Iterator[None]:
    """Hold the lock of a file, made if it is not there.

    The file stays: if it were removed, two processes could hold the lock.

    Args:
        path: the file.
        seconds: how long to wait for another process that holds it.
        busy: raised if that process holds it for longer.

    Raises:
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, PRIVATE)
    try:
        end = time.monotonic() + seconds
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() >= end:
                raise busy
            time.sleep(_LOCK_PAUSE)
        yield
    finally:
        os.close(descriptor)


def read_private(path: Path, most: int, kind: str) -> bytes:
    """Read the beginning of a file that no other user can read or write.

    Args:
        path: the file.
        most: bytes.
        kind: what it is called in messages.

    Raises:
        ConfigurationError: it is not there, or cannot be trusted; the message names the file and
            holds nothing of what is in it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | _SAFE)
    except OSError as error:
        raise ConfigurationError(f"{kind} {path} {_why_not_opened(error)}") from None
    try:
        found = os.fstat(descriptor)
        problem = _problem(found)
        if not problem and found.st_mode & _OTHERS:
            problem = "can be used by others: run `chmod 600` on it"
        if problem:
            raise ConfigurationError(f"{kind} {path} {problem}")
        return os.read(descriptor, most)
    except OSError as error:
        raise ConfigurationError(f"{kind} {path} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def opened(path: Path) -> BinaryIO:
    """Open a file that a person or a configuration names. Links are followed, and nothing waits.

    Raises:
        OSError: it cannot be read, or is a pipe, which would hold the reader, a device, which would
            never end, or a directory.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_regular(path: Path) -> bytes:
    """Return the content of a file, opened by `opened`.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with opened(path) as file:
        return file.read()


def read_beginning(path: Path, most: int) -> bytes:
    """Return the first bytes of a file. Follows no link, and does not wait for a pipe.

    Raises:
        OSError: it is not there, is a link, or cannot be read.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | _SAFE), "rb") as file:
        return file.read(most)


def _problem(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    return ""


def _why_not_opened(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "is a symbolic link"
    return f"cannot be read: {error.strerror}"


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether a path still leads to an open file."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    return False


def write_whole(path: Path, raw: bytes, *, locked: bool = False) -> None:
    """Write a file in one step, over what may be there.

    Args:
        path: its directory is there.
        raw: its content.
        locked: whether the caller keeps others from writing it. Then it is on the disk before this
            returns, and what a crash left beside it is cleared away.

    Raises:
        OSError: it could not be written; what was there is as it was, and nothing is left behind.
    """
    write_pieces(path, [raw], locked=locked)


def write_pieces(path: Path, pieces: Iterable[bytes], *, locked: bool = False) -> None:
    """Write a file in one step, as `write_whole` does, from pieces that come one after the other.

    Raises:
        OSError: it could not be written; what was there is as it was, and nothing is left behind.
            It names `path`.
    """
    own = "" if locked else f".{os.getpid()}.{os.urandom(6).hex()}"
    temporary = path.with_name(f".{path.name}{own}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, PRIVATE)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.writelines(pieces)
                if locked:
                    out.flush()
                    os.fsync(out.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
    if locked:
        sync_directory(path.parent)


class KeptFile(Struct, frozen=True):
    """A file that several processes of this user read, and replace under a lock."""

    path: Path
    most: int
    """Bytes."""
    fault: Callable[[str], Exception]
    """Makes the error that says what is wrong with the file: `is a symbolic link`."""

    def stamp(self) -> Stamp:
        """Return the current stamp, read in microseconds; `fault`: the disk does not answer."""
        try:
            return stamp_of(self.path.lstat())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self.fault(_why_not_opened(error)) from None

    def read(self) -> tuple[bytes, Stamp] | None:
        """Return the content and its stamp, or None if there is no file.

        `fault`: it is not trustworthy.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | _SAFE)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.fault(_why_not_opened(error)) from None
        try:
            found = os.fstat(descriptor)
            problem = _problem(found)
            if problem or found.st_mode & _OTHERS_WRITE:
                raise self.fault(problem or "can be written by other users")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                raw = file.read(self.most + 1)
        except OSError as error:
            raise self.fault(_why_not_opened(error)) from None
        finally:
            os.close(descriptor)
        if len(raw) > self.most:
            raise self.fault(f"is larger than {self.most} bytes")
        return raw, stamp_of(found)

    def locked(self, lock: Path, seconds: float) -> AbstractContextManager[None]:
        """Keep the other processes from changing it; see `held_lock`."""
        return held_lock(lock, seconds, self.fault("is in use by another process"))

    def replace(self, raw: bytes) -> Stamp:
        """Write it, under the lock. Returns its new stamp; `fault`: it would be too large.

        Raises:
            OSError: it cannot be written, and is as it was.
        """
        if len(raw) > self.most:
            raise self.fault(f"would be larger than {self.most} bytes")
        write_whole(self.path, raw, locked=True)
        return self.stamp()


def append_line(path: Path, line: bytes, most: int) -> None:
    """Add a line to a private file, made if it is not there.

    Raises:
        OSError: it is no regular file of ours, would become larger than `most` bytes, or cannot be
            written.
    """
    # No link, and no pipe, which would block without a reader.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE, PRIVATE)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError("not a regular file of ours")
        if status.st_size + len(line) > most:
            raise OSError("the file is full")
        os.fchmod(descriptor, PRIVATE)
        written = os.write(descriptor, line)
        if written < len(line):
            # A full disk takes what fits. The next line must not follow the torn one, where only
            # we have written.
            if os.fstat(descriptor).st_size == status.st_size + written:
                os.ftruncate(descriptor, status.st_size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make new names last, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_private_directory(directory: Path) -> None:
    """Make a directory and its parents, each for us alone. Existing ones stay as they are.

    Raises:
        OSError: it cannot be made.
    """
    if directory.is_dir():
        return
    make_private_directory(directory.parent)
    with suppress(FileExistsError):
        directory.mkdir(0o700)


def shared_with(directory: Path) -> str:
    """Return why other users can change what is in a directory, or empty if they cannot.

    A link counts as what it leads to. The user's own group is the user. Root may use what belongs
    to another user, who has mounted it in a container.
    """
    with suppress(OSError):
        found = directory.stat()
        if os.geteuid() and found.st_uid not in {0, os.geteuid()}:
            return "belongs to another user, who could change the policy: use another HOME"
        own = stat.S_IWGRP if found.st_gid == os.getegid() else 0
        if found.st_mode & _OTHERS_WRITE & ~own:
            return "can be written by other users: look through it, and run `chmod 700` on it"
    return ""
