"""The removal of forbidden files into a directory of ours, and the restoring of earlier ones.

Servers may change the directories meanwhile, so each is reached without following links, and each
entry is moved in one step. Moved entries are kept, because they may be the user's own.
"""

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ironcurtain_proxy.sandbox.control_files import ControlFile, opened

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PASSED: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
_MOST_KEPT: Final = 1000
"""The most entries of the directory. Later files stay on their own file system, under a name that
steers nothing: a server that makes the same file again and again does not fill our directory."""
_LARGEST_COPY: Final = 1 << 20
_LONGEST_NAME: Final = 150
"""Bytes of the name that are kept; with ours around them it is still a name."""


@dataclass(slots=True)
class RemovedFiles:
    """The directory of moved files. Only files that are kept already are removed."""

    directory: Path
    """The directory in the state directory, where no server looks. Made when it is needed."""
    _known: dict[bytes, str] = field(default_factory=dict, init=False)
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
        """Move it into our directory; None: it stays where it is."""
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
    """A small file's content; None: it is something else, or cannot be read."""
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
    with opened(parent or "/") as place:
        found = os.open(name, _PASSED, dir_fd=place)
        try:
            mode = stat.S_IMODE(os.fstat(found).st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                Path(f"/proc/self/fd/{found}").chmod(mode | stat.S_IRWXU)
        finally:
            os.close(found)


def restore(path: str, item: ControlFile) -> None:
    """Restore a file, byte for byte.

    Raises:
        OSError: it cannot be written.
    """
    parent, _, name = path.rpartition("/")
    content = item.content
    if content is None:
        return
    with opened(parent) as place:
        if item.is_link:
            os.symlink(os.fsdecode(content), name, dir_fd=place)
            return
        new = f".{name}.{os.urandom(4).hex()}"
        file = os.open(new, _NEW, 0o600, dir_fd=place)
        try:
            with os.fdopen(file, "wb") as writer:
                writer.write(content)
                os.fchmod(writer.fileno(), item.mode)
            os.rename(new, name, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            with suppress(OSError):
                os.unlink(new, dir_fd=place)
            raise
