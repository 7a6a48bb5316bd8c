"""Control files that a server left: read, moved into a directory of ours, earlier ones restored.

Servers may change the directories meanwhile, so each is reached without following links, and each
entry is moved in one step. Moved entries are kept, because they may be the user's own.
"""

import ctypes
import hashlib
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.control_places.git_files import MOST_READ
from ironcurtain_proxy.control_places.rules import ControlKind, is_acted_on
from ironcurtain_proxy.model.reply import PutBack
from ironcurtain_proxy.private_files import closed_after

# --- control files


_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PASSED: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
"""Needs no right to read the directory: others' directories on the way may only be passed."""
_LARGEST: Final = 1 << 20
EXECUTABLE: Final = 0o111
_STATX: Final = getattr(ctypes.CDLL(None), "statx", None)
"""The system call that tells when a file was made, or None if the C library is older than 2018."""
_STATX_BYTES, _BORN_AT, _WANT_BORN, _NO_FOLLOW, _FROM_ROOT = 256, 80, 0x800, 0x100, -100

Inode: TypeAlias = tuple[int, int]
"""The device and the number of a file."""
FileKind: TypeAlias = ControlKind | Literal["led-to", "index"]
"""`led-to`: no control place by its name, but settings of git or a link lead to it. `index`: the
entries of git, which are data unless git would write them elsewhere."""


class ControlFile(Struct, frozen=True):
    """The state of one file."""

    content: bytes | None
    """The content, or the target of a link; None: too large to be kept, not readable, or an index,
    of which nothing is restored."""
    mode: int = 0
    signature: tuple[int, ...] = ()
    """The stamp of a file whose content is not kept: inode, size and times, and of an index its
    hash, too."""
    links: int = 1
    is_link: bool = False

    def is_same(self, other: "ControlFile | None") -> bool:
        """Return whether the content is certainly the same, and no more programs may run it."""
        if other is None or (self.is_link, self.content) != (other.is_link, other.content):
            return False
        if self.content is None and (not self.signature or self.signature != other.signature):
            return False
        return not self.mode & ~other.mode & EXECUTABLE


class Found(Struct, frozen=True):
    """A control place that exists, as a file, a link, or a hidden directory as a whole."""

    path: str
    kind: FileKind
    anchor: str
    """The outermost directory that belongs to it alone, such as a repository's `.git` or
    `.claude`; for a file that stands alone, the directory that holds it."""
    inode: Inode
    """The anchor's. What is known of a place moves with it."""
    is_whole: bool
    """Whether nothing but control places and their data lies in the anchor."""
    is_bare: bool = False
    """Whether git takes the anchor for a repository, and other files may lie in it."""

    @property
    def inner(self) -> str:
        """The path in the anchor."""
        return self.path[len(self.anchor) + 1 :]

    @property
    def key(self) -> tuple[Inode, str]:
        """The name under which its state is known: a pointer means something else elsewhere."""
        if self.kind == "pointer":
            return (0, 0), self.path
        return self.inode, self.inner


def read_control_file(path: str, kind: FileKind) -> ControlFile | None:
    """Return the current state of a file, or None if it is not there."""
    try:
        with opened(path.rpartition("/")[0]) as parent:
            found = _read(parent, path.rpartition("/")[2])
    except FileNotFoundError:
        return None
    except OSError:
        # A server may have closed the directory, and may open it again.
        return ControlFile(None)
    if kind != "index" or found.content is None or found.is_link:
        return found
    # Nobody outside this process can foresee the hash.
    return replace(found, content=None, signature=(*found.signature, hash(found.content)))


class Index(Struct, frozen=True):
    """An index of git."""

    content: bytes
    settings: bytes
    """The configuration of its repository."""
    written_ns: int
    """The time of the last change: git reads each file again that is as new."""


def read_index(path: str) -> Index | None:
    """Return an index, or None if there is none that can be read."""
    holder = path.rpartition("/")[0]
    settings = _whole(f"{holder}/config") or _whole(f"{holder}/../../config") or (b"", 0)
    index = _whole(path)
    return None if index is None else Index(index[0], settings[0], index[1])


def _whole(path: str) -> tuple[bytes, int] | None:
    with suppress(OSError), open(path, "rb", opener=_opener) as file:
        status = os.fstat(file.fileno())
        return (file.read(), status.st_mtime_ns) if status.st_size <= MOST_READ else None
    return None


def _opener(path: str, _flags: int) -> int:
    return os.open(path, _OPEN)


def _read(directory: int, name: str) -> ControlFile:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        target = os.fsencode(os.readlink(name, dir_fd=directory))
        return ControlFile(target, links=status.st_nlink, is_link=True)
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
        links = 1 if stat.S_ISDIR(status.st_mode) else status.st_nlink
        return ControlFile(None, stat.S_IMODE(status.st_mode), stamp, links)
    with closed_after(os.open(name, _OPEN, dir_fd=directory)) as file:
        content = os.read(file, _LARGEST + 1)
        kept = content if len(content) <= _LARGEST else None
        return ControlFile(kept, stat.S_IMODE(status.st_mode), stamp, status.st_nlink)


class ClosedIdentity(Struct, frozen=True, array_like=True):
    """A file, which no other one is taken for."""

    inode: int
    born: tuple[int, int]
    """The time at which it was made, which only the kernel sets; zeros: it is not known. A file
    system gives a free inode to the next file: two saves later it is back at the same path."""


def identity_of(path: str) -> ClosedIdentity | None:
    """Return what identifies a file, or None if it is not there."""
    inode = inode_of(path)
    return None if inode is None else ClosedIdentity(inode[1], _born(path))


def _born(path: str) -> tuple[int, int]:
    """Return the time at which a file was made, in seconds and nanoseconds."""
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if _STATX is None or _STATX(_FROM_ROOT, os.fsencode(path), _NO_FOLLOW, _WANT_BORN, found) != 0:
        return 0, 0
    (given,) = struct.unpack_from("=I", found)
    return struct.unpack_from("=qI", found, _BORN_AT) if given & _WANT_BORN else (0, 0)


def inode_of(path: str) -> Inode | None:
    """Return the identity of a file, or None if it is not there."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if not stat.S_ISFIFO(status.st_mode) else (0, 0)


def has_one_name(path: str) -> bool:
    """Return whether a closed file cannot be written under another name."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) or status.st_nlink == 1


def shown(path: str) -> str:
    """Return a path on one line: a server may have chosen its name."""
    return "".join([c if c.isprintable() else f"\\x{ord(c):02x}" for c in path])


@contextmanager
def opened(directory: str, *, makes: bool = False) -> Iterator[int]:
    """Open a directory without following any link, because a server may exchange links.

    `makes`: it is made, if it is not there.

    Raises:
        OSError: there is none, or a link is on the way.
    """
    descriptor = os.open("/", _PASSED)
    try:
        for name in directory.split("/"):
            if name:
                if makes:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                inner = os.open(name, _PASSED, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


# --- putting back


CAN: Final = "can make programs run outside every sandbox"
_MOST_IN_CALL: Final = 3
"""Looks without a moment in between in which no call was under way. A tool that makes a project
writes such files one after another; a process that makes them again and again races the user's
programs."""
_MOST_IN_SESSION: Final = 10
"""The same of all calls: a program of the user may have met each before it was gone."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_KEPT: Final = 1000
"""The most entries of the directory. Later files stay on their own file system, under a name that
steers nothing: a server that makes the same file again and again does not fill our directory."""
_LARGEST_COPY: Final = 1 << 20
_LONGEST_NAME: Final = 150
"""Bytes of the name that are kept; with ours around them it is still a name."""


class Mishaps(Struct):
    """How many looks put back something that acts: up to a number it may be a mishap."""

    in_call: int = 0
    in_session: int = 0

    def count(self, found: Iterable[PutBack], *, is_last: bool) -> list[PutBack]:
        """Count one look. Return what ends containment, if it was one too many.

        `is_last`: no call is under way any more.
        """
        if any(one.acts for one in found):
            self.in_call, self.in_session = self.in_call + 1, self.in_session + 1
        what = f"what {CAN} was put back more than"
        said = f"{what} {_MOST_IN_CALL} times during one call"
        if self.in_call <= _MOST_IN_CALL:
            self.in_call *= not is_last
            if not is_last or self.in_session <= _MOST_IN_SESSION:
                return []
            said = f"{what} {_MOST_IN_SESSION} times in this session"
        # A person looks now, and may resume containment.
        self.in_call = self.in_session = 0
        return [PutBack(said, ends="writers")]


class RemovedFiles(Struct):
    """The directory of moved files. Only files that are kept already are removed."""

    directory: Path
    """The directory in the state directory, where no server looks. Made when it is needed."""
    _known: dict[bytes, str] = field(default_factory=dict)
    """The places of kept files, by content."""

    def take(self, path: str, beside: str = "") -> str:
        """Move a file or directory away; gives where it is now, or an empty text if it is gone.

        Args:
            path: the file or directory.
            beside: the directory where it may stay if it cannot be moved to ours; empty: its own.

        Raises:
            OSError: it cannot be moved.
        """
        parent, _, name = path.rpartition("/")
        beside = beside or parent
        with opened(parent or "/") as source, opened(beside or "/") as place:
            # A rename on the same file system works on each, and in one step: nothing
            # changes between the look and the move.
            aside = f"put-back-{os.urandom(4).hex()}-{_cut(name)}.sample"
            try:
                os.rename(name, aside, src_dir_fd=source, dst_dir_fd=place)
            except FileNotFoundError:
                return ""
            content = _content(aside, place)
            digest = None if content is None else hashlib.sha256(content).digest()
            before = None if digest is None else self._known.get(digest)
            if before is not None and os.path.lexists(before):
                with suppress(FileNotFoundError):
                    os.unlink(aside, dir_fd=place)
                return before
            kept = self._keep(name, aside, place, content)
            if kept is None:
                return f"{beside}/{aside}"
            if digest is not None:
                self._known[digest] = kept
            return kept

    def _keep(self, name: str, aside: str, place: int, content: bytes | None) -> str | None:
        """Move it into our directory, or None if it stays where it is."""
        kept = self.directory / f"{os.urandom(6).hex()}-{_cut(name)}"
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.scandir(self.directory) as entries:
                if sum(1 for _ in entries) >= _MOST_KEPT:
                    return None
            os.rename(aside, kept, src_dir_fd=place)
        except OSError:
            # Another file system, or a full one.
            is_kept = content is not None and _copied(content, kept)
            if is_kept:
                with suppress(FileNotFoundError):
                    os.unlink(aside, dir_fd=place)
            return str(kept) if is_kept else None
        return str(kept)


def _cut(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])


def _content(name: str, place: int) -> bytes | None:
    """Return a small file's content, or None if it is something else, or cannot be read."""
    try:
        descriptor = os.open(name, _READ, dir_fd=place)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            content = file.read(_LARGEST_COPY + 1)
    except OSError:
        return None
    return content if len(content) <= _LARGEST_COPY else None


def _copied(content: bytes, to: Path) -> bool:
    try:
        with os.fdopen(os.open(to, _NEW, 0o600), "wb") as file:
            file.write(content)
    except OSError:
        with suppress(OSError):
            to.unlink()
        return False
    return True


def let_in(directory: str) -> None:
    """Add our permission to read a directory whose mode lacks it.

    Raises:
        OSError: the mode cannot be changed.
    """
    with suppress(OSError):
        # To reach a directory without a link takes a call for each one above it: only if needed.
        if os.lstat(directory).st_mode & stat.S_IRWXU == stat.S_IRWXU:
            return
    parent, _, name = directory.rpartition("/")
    with (
        opened(parent or "/") as place,
        closed_after(os.open(name, _PASSED, dir_fd=place)) as found,
    ):
        mode = stat.S_IMODE(os.fstat(found).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            Path(f"/proc/self/fd/{found}").chmod(mode | stat.S_IRWXU)


def holds_more(directory: str, those: Sequence[Found]) -> bool:
    """Return whether other entries lie beside these in a directory that is no control place."""
    if those[0].anchor != directory or is_acted_on(directory.rpartition("/")[2]):
        return False
    with suppress(OSError), os.scandir(directory) as entries:
        return sum(1 for _ in islice(entries, len(those) + 1)) > len(those)
    return True


def remove(path: str) -> None:
    """Remove a file that nobody misses.

    Raises:
        OSError: it cannot be removed.
    """
    parent, _, name = path.rpartition("/")
    with opened(parent) as place:
        os.unlink(name, dir_fd=place)


def restore(path: str, item: ControlFile, *, makes: bool = False) -> None:
    """Restore a file, byte for byte. `makes`: also the directories above it.

    Raises:
        OSError: it cannot be written.
    """
    parent, _, name = path.rpartition("/")
    content = item.content
    if content is None:
        return
    with opened(parent, makes=makes) as place:
        if item.is_link:
            os.symlink(os.fsdecode(content), name, dir_fd=place)
            return
        with _written(place, f".{name}.{os.urandom(4).hex()}", content, item.mode) as new:
            os.rename(new, name, src_dir_fd=place, dst_dir_fd=place)


def replace_index(path: str, before: Index, content: bytes) -> None:
    """Write an index anew, under git's own lock. Whoever wrote it meanwhile wins.

    Without a lock where one is there: it may be left by a process that stands still, or for good.
    A git that goes on with that replaces our index, which is then looked at again.

    Raises:
        OSError: it cannot be written.
    """
    parent, _, name = path.rpartition("/")
    with opened(parent) as place, ExitStack() as stack:
        mode = stat.S_IMODE(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
        try:
            new = stack.enter_context(_written(place, f"{name}.lock", content, mode))
        except FileExistsError:
            aside = f"{name}.{os.urandom(4).hex()}.lock"
            new = stack.enter_context(_written(place, aside, content, mode))
        now = read_index(path)
        if now is not None and now.content == before.content:
            os.utime(new, ns=(before.written_ns, before.written_ns), dir_fd=place)
            os.rename(new, name, src_dir_fd=place, dst_dir_fd=place)
        else:
            os.unlink(new, dir_fd=place)


@contextmanager
def _written(place: int, name: str, content: bytes, mode: int) -> Iterator[str]:
    """Write a new file, which the block renames. It is removed if that fails."""
    file = os.open(name, _NEW, 0o600, dir_fd=place)
    try:
        with os.fdopen(file, "wb") as writer:
            writer.write(content)
            os.fchmod(writer.fileno(), mode)
        yield name
    except OSError:
        with suppress(OSError):
            os.unlink(name, dir_fd=place)
        raise
