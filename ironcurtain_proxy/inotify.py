"""The queue in which the kernel reports changes in directories (inotify). Linux only.

The kernel queues an event before the system call that caused it returns, so a read of the queue
after a server's answer gives all its changes. A library that reads the queue in a thread cannot
guarantee that.

Where an event is only a sign that it is time to look, `add` and `names` are enough: whoever listens
looks by itself what there is, so that a lost event costs time and nothing else.
"""

import ctypes
import errno
import fcntl
import os
import struct
import termios
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

OVERFLOW: Final = 0x4000
"""Mask of an event: others were lost."""
IGNORED: Final = 0x8000
"""Mask of an event: the directory is not watched any more."""
ONLYDIR: Final = 0x01000000
_MODIFY, _CLOSE_WRITE, _MOVED_TO, _CREATE = 0x2, 0x8, 0x80, 0x100
_DONT_FOLLOW, _MASK_ADD = 0x02000000, 0x20000000
_ENTRIES: Final = _CREATE | _MOVED_TO | ONLYDIR | _DONT_FOLLOW | _MASK_ADD
WRITTEN: Final = _MODIFY | _CLOSE_WRITE
"""Masks of events of which only the directories tell that were added with `contents`."""
_HEAD: Final = struct.Struct("iIII")
_MOST: Final = 1 << 18


class InotifyQueue:
    """The watched directories, by number, and the events in them."""

    def __init__(self) -> None:
        """Begin to watch nothing.

        Raises:
            OSError: the system has no such queues, or no descriptor or queue is left.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self.descriptor = int(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "no changes of files can be watched")
        # A user has 128 of these: one that nobody holds any more is given back.
        self._given_back = weakref.finalize(self, os.close, self.descriptor)

    def watch(self, directory: str, mask: int) -> int:
        """Watch a directory for the events of a mask. Returns its number.

        Raises:
            OSError: it cannot be watched.
        """
        number = self._libc.inotify_add_watch(self.descriptor, os.fsencode(directory), mask)
        if number < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), directory)
        return int(number)

    def add(self, directory: str, *, contents: bool = False) -> bool:
        """Watch for new entries of a directory, and with `contents` for changes of its files.

        Returns False if it cannot be watched, as where the system has no room.
        """
        try:
            self.watch(directory, _ENTRIES | (WRITTEN if contents else 0))
        except OSError:
            return False
        return True

    def names(self) -> set[str]:
        """Return the names that the waiting events tell, and forget the events."""
        return {name for _, _, name in self.events() if name}

    def unwatch(self, number: int) -> None:
        """Stop watching a directory."""
        self._libc.inotify_rm_watch(self.descriptor, number)

    def events(self) -> Iterator[tuple[int, int, str]]:
        """Yield the waiting events: the directory's number, the mask, the name in the directory.

        Events that come meanwhile wait for the next time: a process that makes ever more of them
        would keep this from ending.
        """
        count = bytearray(struct.calcsize("i"))
        fcntl.ioctl(self.descriptor, termios.FIONREAD, count)
        left = int(struct.unpack("i", count)[0])
        while left > 0:
            try:
                data = os.read(self.descriptor, _MOST)
            except BlockingIOError:
                return
            left -= len(data)
            at = 0
            while at < len(data):
                number, mask, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                yield number, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))
                at += length

    def close(self) -> None:
        """Watch nothing any more."""
        with suppress(OSError):
            self._given_back()
