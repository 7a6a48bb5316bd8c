"""A private `/tmp` of a server, mounted over the machine's inside its sandbox.

Commands often name `/tmp`. The machine's holds files and sockets of other programs, so it is
hidden. Second instances of a server share its private one.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.sandbox import inside
from ironcurtain_proxy.sandbox.profile import SandboxProfile

PLACES: Final = ("/tmp", "/var/tmp")  # noqa: S108  what is mounted over, never opened
SUFFIX: Final = ".tmp"
"""The suffix of a server's directory in the session's."""
MOST_BYTES: Final = 2 << 30
MOST_ENTRIES: Final = 20_000


class PrivateTmp(Struct, frozen=True):
    """The mount over the directories for temporary files."""

    directory: str
    """The directory on the machine; it is the server's own and ends with the session."""
    places: tuple[str, ...] = PLACES
    """The paths of the directory inside the sandbox."""
    shown: tuple[str, ...] = ()
    """The machine's paths that the server or its sandbox needs: readable, not writable."""

    def mounts(self, sockets: str) -> tuple[str, ...]:
        """The arguments of bubblewrap, for right after the root.

        Args:
            sockets: the directory of the sandbox's own sockets.
        """
        found: list[str] = []
        for place in self.places:
            found += ["--bind", self.directory, place]
        for path in (*self.shown, sockets):
            if any(_is_below(path, place) for place in self.places):
                found += ["--ro-bind-try", path, path]
        return tuple(found)

    def is_full(self) -> bool:
        """Whether it holds more than a session may keep, or the size is unknown."""
        entries, size, pending = 0, 0, [self.directory]
        try:
            while pending:
                with os.scandir(pending.pop()) as found:
                    for entry in found:
                        entries += 1
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entries > MOST_ENTRIES or size > MOST_BYTES:
                            return True
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except FileNotFoundError:
            # A process there may be deleting files.
            return entries > MOST_ENTRIES // 2
        except OSError:
            return True
        return False


def private_tmp(
    directory: str, profile: SandboxProfile, needed: Iterable[str]
) -> PrivateTmp | None:
    """The `/tmp` of a server; None: it needs the machine's own.

    Args:
        directory: the server's own, on the machine.
        profile: of its sandbox.
        needed: paths that have to stay as they are inside.
    """
    ours = (sys.executable, sys.base_prefix, str(Path(inside.__file__).parent))
    named = [*profile.allow_write, *profile.allow_read, *needed, *ours]
    paths = {path for one in named if one.startswith("/") for path in (one, os.path.realpath(one))}
    real = dict.fromkeys(os.path.realpath(place) for place in PLACES if Path(place).is_dir())
    places = [place for place in real if not any(_is_in(place, path) for path in paths)]
    if not places:
        return None
    shown = {
        f"{place}/{path[len(place) + 1 :].split('/')[0]}"
        for place in places
        for path in paths
        if _is_below(path, place)
    }
    return PrivateTmp(directory, tuple(places), tuple(sorted(shown)))


def named_paths(words: Sequence[str]) -> list[str]:
    """The absolute paths that words of a command or values of variables name."""
    parts = [part for word in words for half in word.split("=") for part in half.split(":")]
    return [part for part in parts if part.startswith("/") and "\0" not in part]


def remove_private(state: Path) -> None:
    """Remove the directories of a session's servers, whatever modes were set in them."""
    for directory in state.glob(f"*{SUFFIX}"):
        if directory.is_symlink() or not directory.is_dir():
            continue
        for place, _, _ in os.walk(directory):
            with suppress(OSError):
                os.chmod(place, 0o700, follow_symlinks=False)  # noqa: PTH101  a link is left alone
        shutil.rmtree(directory, ignore_errors=True)


def _is_in(path: str, directory: str) -> bool:
    return RealPath.from_text(path).is_within(RealPath.from_text(directory))


def _is_below(path: str, directory: str) -> bool:
    return path != directory and _is_in(path, directory)
