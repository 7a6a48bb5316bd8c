"""Events of directories, as a sign that it is time to look. Linux only.

Whoever listens looks by itself what there is, so that a lost event costs time and nothing else.
"""

from typing import Final

from ironcurtain_proxy.inotify import ONLYDIR, InotifyQueue

_MODIFY, _CLOSE_WRITE, _MOVED_TO, _CREATE = 0x2, 0x8, 0x80, 0x100
_DONT_FOLLOW, _MASK_ADD = 0x02000000, 0x20000000
_ENTRIES: Final = _CREATE | _MOVED_TO | ONLYDIR | _DONT_FOLLOW | _MASK_ADD
_CONTENTS: Final = _MODIFY | _CLOSE_WRITE


class Inotify:
    """The directories whose new entries are told."""

    def __init__(self) -> None:
        """Listen to no directory yet.

        Raises:
            OSError: the system has no descriptor or no instance left.
        """
        self._queue = InotifyQueue()
        self.descriptor = self._queue.descriptor

    def add(self, directory: str, *, contents: bool = False) -> bool:
        """Listen for new entries of a directory, and with `contents` for what its files are given.

        Returns False if it cannot be listened to, as where the system has no room.
        """
        try:
            self._queue.watch(directory, _ENTRIES | (_CONTENTS if contents else 0))
        except OSError:
            return False
        return True

    def names(self) -> set[str]:
        """Return the names that the waiting events tell, and forget the events."""
        return {name for _, _, name in self._queue.events() if name}

    def close(self) -> None:
        """End all watches."""
        self._queue.close()
