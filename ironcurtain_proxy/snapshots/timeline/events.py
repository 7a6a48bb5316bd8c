"""Directories with changes since the last scan, as reported by inotify.

Linux only; on other systems, and without free watches, everything is scanned. A write through a
memory mapping, or under another name outside of the workspace, causes no event: a scan finds it.
"""

import ctypes
import fcntl
import os
import struct
import termios
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

_CHANGES: Final = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400
"""Written, attributes, closed after writing, moved from and to, created, deleted, itself gone."""
_ONLYDIR: Final = 0x01000000
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_HEAD: Final = struct.Struct("iIII")
_MOST: Final = 1 << 18


class Events:
    """The directories that are watched."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        if hasattr(self._libc, "inotify_init1"):
            self._descriptor = int(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        # A user has 128 of these: one that nobody holds any more is given back.
        self._given_back = weakref.finalize(self, _closed, self._descriptor)
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self.missed = self._descriptor < 0
        """Whether events may be missing, so that everything must be scanned."""

    @property
    def can_tell(self) -> bool:
        """Whether the system has such watches at all."""
        return self._descriptor >= 0

    def watch(self, path: str, descriptor: int) -> None:
        """Watch an open directory under a name. The caller lists it afterwards, not before."""
        if self._descriptor < 0:
            return
        # By its descriptor, because its name may be a link by now.
        where = f"/proc/self/fd/{descriptor}".encode()
        found = int(self._libc.inotify_add_watch(self._descriptor, where, _CHANGES | _ONLYDIR))
        if found < 0:
            self.missed = True
            self._end()
            return
        old = self._paths.get(found)
        if old is not None and self._watches.get(old) == found:
            del self._watches[old]
        self._paths[found] = path
        self._watches[path] = found

    def is_watched(self, path: str) -> bool:
        """Whether a directory is watched under this name."""
        return path in self._watches

    def forget(self, path: str) -> None:
        """Stop watching a directory that is gone from there, unless it was met elsewhere."""
        watch = self._watches.pop(path, None)
        if watch is not None and self._paths.get(watch) == path:
            del self._paths[watch]
            self._libc.inotify_rm_watch(self._descriptor, watch)

    def happened(self) -> dict[str, set[str]]:
        """The names with events since the last call, by directory."""
        found: dict[str, set[str]] = {}
        # Not more than waits by now: a process that goes on and on would never let this end.
        left = _waiting(self._descriptor) if self._descriptor >= 0 else 0
        while left > 0:
            try:
                data = os.read(self._descriptor, _MOST)
            except BlockingIOError:
                break
            left -= len(data)
            for watch, mask, name in _parsed(data):
                self.missed |= bool(mask & _OVERFLOW)
                path = self._paths.get(watch)
                if path is not None:
                    found.setdefault(path, set()).add(name)
                    if mask & _IGNORED:
                        del self._paths[watch]
                        self._watches.pop(path, None)
        return found

    def _end(self) -> None:
        self._given_back()
        self._descriptor = -1
        self._paths.clear()
        self._watches.clear()

    def close(self) -> None:
        """Watch nothing any more."""
        if self._descriptor >= 0:
            self._end()


def _waiting(descriptor: int) -> int:
    """The number of bytes that can be read now."""
    count = bytearray(struct.calcsize("i"))
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return int(struct.unpack("i", count)[0])


def _closed(descriptor: int) -> None:
    with suppress(OSError):
        if descriptor >= 0:
            os.close(descriptor)


def _parsed(data: bytes) -> Iterable[tuple[int, int, str]]:
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length
