"""Paths below a directory, opened so that no link on the way leads anywhere else.

The kernel walks the path where it can (`openat2`, Linux 5.6); else each component is opened alone.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from sys import byteorder
from typing import Final

_OPENAT2: Final = 437
"""The number of the system call, the same on every architecture of Linux."""
_NO_MAGIC_LINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_HOW: Final = struct.Struct("QQQ")
_LONGEST: Final = 4000
"""Bytes of a path that the kernel is given at once; it takes 4,096."""
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PASSED: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to pass through a directory or change it, which need not be readable."""


_TIMELY: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0xCA451A4E, 0x2FC12FC1})
"""The types of file systems that set a file's times at a write through a shared mapping: ext, XFS,
Btrfs, F2FS, bcachefs and ZFS. tmpfs does not, and overlays, FUSE and networks pass on what another
file system does."""
_STATFS_BYTES: Final = 512


class OpenedRoot:
    """An open directory, independent of later changes of its name."""

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            OSError: it is not there, or no directory.
        """
        self.path = path
        self.descriptor = os.open(path, DIRECTORY)
        found = os.fstat(self.descriptor)
        self.device = found.st_dev
        self._libc = ctypes.CDLL(None, use_errno=True) if hasattr(os, "O_PATH") else None
        self.sets_times = self._kind_of_file_system() in _TIMELY
        """Whether every write changes a file's times; an unknown file system counts as one that
        does not."""

    def _kind_of_file_system(self) -> int:
        """The number by which the kernel knows the file system; 0: it does not say."""
        if self._libc is None:
            return 0
        found = ctypes.create_string_buffer(_STATFS_BYTES)
        if self._libc.fstatfs(ctypes.c_int(self.descriptor), found) != 0:
            return 0
        return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_uint)], byteorder)

    def is_in_place(self) -> bool:
        """Whether the path still leads here."""
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(self.descriptor))
        except OSError:
            return False

    def open(self, path: str, flags: int = DIRECTORY) -> int:
        """A descriptor of a path below; empty: of the directory itself.

        Raises:
            OSError: `FileNotFoundError`, `NotADirectoryError`, or ELOOP for a link.
        """
        if not path:
            return os.open(".", flags, dir_fd=self.descriptor)
        if self._libc is not None:
            try:
                return self._open_in_hops(os.fsencode(path), flags)
            except OSError as error:
                # Old kernels, and containers whose filter does not know the call.
                if error.errno not in (38, 1):
                    raise
                self._libc = None
        return self._open_by_parts(path, flags)

    def _open_in_hops(self, path: bytes, flags: int) -> int:
        """Open a path of any length, with few calls."""
        held = self.descriptor
        try:
            while len(path) > _LONGEST:
                hop = path[:_LONGEST].rpartition(b"/")[0]
                below = self._open_whole(held, hop, PASSED)
                path = path[len(hop) + 1 :]
                if held != self.descriptor:
                    os.close(held)
                held = below
            return self._open_whole(held, path, flags)
        finally:
            if held != self.descriptor:
                os.close(held)

    def _open_whole(self, start: int, path: bytes, flags: int) -> int:
        how = _HOW.pack(flags, 0, _NO_MAGIC_LINKS | _NO_SYMLINKS | _BENEATH)
        assert self._libc is not None  # noqa: S101  the caller has looked
        found = self._libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(start),
            ctypes.c_char_p(path),
            ctypes.c_char_p(how),
            ctypes.c_size_t(len(how)),
        )
        if found < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fsdecode(path))
        return int(found)

    def _open_by_parts(self, path: str, flags: int) -> int:
        *above, name = path.split("/")
        descriptor = os.open(".", PASSED, dir_fd=self.descriptor)
        try:
            for part in above:
                below = os.open(part, PASSED, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            return os.open(name, flags, dir_fd=descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def directory(self, path: str, flags: int = DIRECTORY) -> Iterator[int]:
        """A descriptor of a directory, closed afterwards."""
        descriptor = self.open(path, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)
