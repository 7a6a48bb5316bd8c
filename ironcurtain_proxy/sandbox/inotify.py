"""Changes in directories, reported by inotify. Linux only.

The kernel queues an event before the system call that caused it returns, so a read of the queue
after a server's answer gives all its changes. A library that reads the queue in a thread cannot
guarantee that.
"""

import ctypes
import fcntl
import os
import select
import struct
import termios
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

_MODIFY, _CLOSE_WRITE, _MOVED_TO, _CREATE = 0x2, 0x8, 0x80, 0x100
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_ISDIR: Final = 0x40000000
_ONLYDIR, _DONT_FOLLOW, _MASK_ADD = 0x01000000, 0x02000000, 0x20000000
_ENTRIES: Final = _CREATE | _MOVED_TO | _ONLYDIR | _DONT_FOLLOW | _MASK_ADD
_CONTENTS: Final = _MODIFY | _CLOSE_WRITE
_HEAD: Final = struct.Struct("iIII")
_MOST: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Event:
    """A new or written entry of a directory."""

    directory: str
    name: str
    is_directory: bool


def _waiting(descriptor: int) -> int:
    """The number of bytes that can be read now."""
    count = bytearray(struct.calcsize("i"))
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return int(struct.unpack("i", count)[0])


class Inotify:
    """The directories that are watched."""

    def __init__(self) -> None:
        """Begin to watch nothing.

        Raises:
            OSError: the system has no descriptor or no instance left.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = int(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "no changes of files can be watched")
        # A user has 128 of these: one that nobody holds any more is given back.
        self._given_back = weakref.finalize(self, os.close, self.descriptor)
        self._directories: dict[int, str] = {}
        self.overflowed = False
        """Whether events were lost since it was last set to False."""
        self.error = 0
        """The system's error number of the last directory that could not be watched; 0: none."""

    def add(self, directory: str, *, contents: bool = False) -> bool:
        """Watch what comes into a directory, and with `contents` what is written there.

        One that was moved is known by its new name from then on. False: it cannot be watched.
        """
        mask = _ENTRIES | (_CONTENTS if contents else 0)
        watch = self._libc.inotify_add_watch(self.descriptor, os.fsencode(directory), mask)
        if watch < 0:
            self.error = ctypes.get_errno()
            return False
        self._directories[watch] = directory
        return True

    def __len__(self) -> int:
        return len(self._directories)

    def has_events(self) -> bool:
        """Whether any are waiting."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def events(self) -> Iterator[Event]:
        """All waiting events, each once.

        What comes meanwhile waits for the next time: a process that goes on and on would never let
        this end.
        """
        seen: set[Event] = set()
        left = _waiting(self.descriptor)
        while left > 0:
            try:
                data = os.read(self.descriptor, _MOST)
            except BlockingIOError:
                return
            left -= len(data)
            for event in self._parsed(data):
                if event not in seen:
                    seen.add(event)
                    yield event

    def _parsed(self, data: bytes) -> Iterator[Event]:
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            self.overflowed |= bool(mask & _OVERFLOW)
            if mask & _IGNORED:
                self._directories.pop(watch, None)
            elif watch in self._directories and name:
                yield Event(self._directories[watch], name, bool(mask & _ISDIR))

    def close(self) -> None:
        """Watch nothing any more."""
        with suppress(OSError):
            self._given_back()
