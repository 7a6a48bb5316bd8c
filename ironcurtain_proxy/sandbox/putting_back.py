"""Takes away what must not be where it is, without losing it, and writes what was there before.

Servers may change the directories meanwhile: each is reached without following links, and what is
taken is moved in one step, whatever it is. What is moved is kept: it may be the user's own.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ironcurtain_proxy.sandbox.steering import Item, opened

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MOST_KEPT: Final = 100
"""A server that makes the same thing again and again does not fill the disk."""


@dataclass(slots=True)
class Keeper:
    """Where things are moved to."""

    directory: Path
    """In the state directory, where no server looks. Made when it is needed."""
    _kept: int = field(default=0, init=False)

    def take(self, path: str) -> str:
        """Move a file or directory away; gives where it is now, or an empty text if it is gone.

        Raises:
            OSError: it cannot be moved.
        """
        parent, _, name = path.rpartition("/")
        with opened(parent or "/") as place:
            if self._kept >= _MOST_KEPT:
                _remove(name, place)
                return ""
            self._kept += 1
            kept = f"{self._kept:03}-{name}"
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                os.rename(name, self.directory / kept, src_dir_fd=place)
            except FileNotFoundError:
                return ""
            except OSError:
                # Another file system. A name of its own steers nothing.
                beside = f"{name}.put-back-{os.urandom(4).hex()}"
                os.rename(name, beside, src_dir_fd=place, dst_dir_fd=place)
                return f"{parent}/{beside}"
            return str(self.directory / kept)


def _remove(name: str, parent: int) -> None:
    with suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=parent)
        except IsADirectoryError:
            shutil.rmtree(name, dir_fd=parent)


def restore(path: str, item: Item) -> None:
    """Write a file as it was, byte for byte.

    Raises:
        OSError: it cannot be written.
    """
    parent, _, name = path.rpartition("/")
    content = item.content
    if content is None:
        return
    with opened(parent) as place:
        if content.startswith(b"-> "):
            os.symlink(os.fsdecode(content.removeprefix(b"-> ")), name, dir_fd=place)
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
