"""New and written entries of directories, as the kernel reports them. Linux only."""

import select
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.inotify import IGNORED, ONLYDIR, OVERFLOW, InotifyQueue

_MODIFY, _CLOSE_WRITE, _MOVED_TO, _CREATE = 0x2, 0x8, 0x80, 0x100
_ISDIR: Final = 0x40000000
_DONT_FOLLOW, _MASK_ADD = 0x02000000, 0x20000000
_ENTRIES: Final = _CREATE | _MOVED_TO | ONLYDIR | _DONT_FOLLOW | _MASK_ADD
_CONTENTS: Final = _MODIFY | _CLOSE_WRITE


@dataclass(frozen=True, slots=True)
class Event:
    """A new or written entry of a directory."""

    directory: str
    name: str
    is_directory: bool


class Inotify:
    """The directories that are watched."""

    def __init__(self) -> None:
        """Watch no directory yet.

        Raises:
            OSError: the system has no descriptor or no instance left.
        """
        self._queue = InotifyQueue()
        self.descriptor = self._queue.descriptor
        self._directories: dict[int, str] = {}
        self.overflowed = False
        """Whether events were lost since it was last set to False."""
        self.error = 0
        """The system's error number of the last directory that could not be watched; 0: none."""

    def add(self, directory: str, *, contents: bool = False) -> bool:
        """Watch new entries of a directory, and with `contents` also what is written to its files.

        A watched directory that was moved has its new path from then on. Returns False if the
        directory cannot be watched.
        """
        try:
            number = self._queue.watch(directory, _ENTRIES | (_CONTENTS if contents else 0))
        except OSError as error:
            self.error = error.errno or 0
            return False
        self._directories[number] = directory
        return True

    def __len__(self) -> int:
        return len(self._directories)

    def has_events(self) -> bool:
        """Whether any are waiting."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def events(self) -> Iterator[Event]:
        """All waiting events, each once."""
        seen: set[Event] = set()
        for number, mask, name in self._queue.events():
            self.overflowed |= bool(mask & OVERFLOW)
            if mask & IGNORED:
                self._directories.pop(number, None)
            elif number in self._directories and name:
                event = Event(self._directories[number], name, bool(mask & _ISDIR))
                if event not in seen:
                    seen.add(event)
                    yield event

    def close(self) -> None:
        """End all watches."""
        self._queue.close()
