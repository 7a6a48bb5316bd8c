"""Directories with changes since the last scan, as the kernel reports them.

Linux only; on other systems, and without free watches, everything is scanned. A write through a
memory mapping, or under another name outside of the workspace, causes no event: a scan finds it.
"""

from contextlib import suppress
from typing import Final

from ironcurtain_proxy.inotify import IGNORED, ONLYDIR, OVERFLOW, InotifyQueue

_CHANGES: Final = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400
"""Written, attributes, closed after writing, moved from and to, created, deleted, itself gone."""


class Events:
    """The directories that are watched."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._queue: InotifyQueue | None = None
        with suppress(OSError):
            self._queue = InotifyQueue()
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self.missed = self._queue is None
        """Whether events may be missing, so that everything must be scanned."""

    @property
    def can_tell(self) -> bool:
        """Whether the system has such watches at all."""
        return self._queue is not None

    def watch(self, path: str, descriptor: int) -> None:
        """Watch an open directory under a name. The caller lists it afterwards, not before."""
        if self._queue is None:
            return
        try:
            # By its descriptor, because its name may be a link by now.
            found = self._queue.watch(f"/proc/self/fd/{descriptor}", _CHANGES | ONLYDIR)
        except OSError:
            self.missed = True
            self.close()
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
        if watch is not None and self._paths.get(watch) == path and self._queue is not None:
            del self._paths[watch]
            self._queue.unwatch(watch)

    def happened(self) -> dict[str, set[str]]:
        """The names with events since the last call, by directory."""
        found: dict[str, set[str]] = {}
        for watch, mask, name in () if self._queue is None else self._queue.events():
            self.missed |= bool(mask & OVERFLOW)
            path = self._paths.get(watch)
            if path is not None:
                found.setdefault(path, set()).add(name)
                if mask & IGNORED:
                    del self._paths[watch]
                    self._watches.pop(path, None)
        return found

    def close(self) -> None:
        """Watch nothing any more."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None
            self._paths.clear()
            self._watches.clear()
