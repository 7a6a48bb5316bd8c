"""The private `/tmp` and folders of a server, mounted over the machine's inside its sandbox.

Commands often name `/tmp`. The machine's holds files and sockets of other programs, so it is
hidden. Many servers keep settings and caches in a folder of the home directory, which no sandbox
lets them write: a private one takes its place. Second instances of a server share its private
places.
"""

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.sandbox import inside
from ironcurtain_proxy.sandbox.profile import SandboxProfile, is_in

PLACES: Final = ("/tmp", "/var/tmp")  # noqa: S108  what is mounted over, never opened
SUFFIX: Final = ".tmp"
"""The suffix of a server's directory in the session's."""
_STEADY: Final = {
    # Programs ask the network for their own newest version. `npm test` would be a call that tried
    # to leave, and asked about when it is made again.
    "npm_config_update_notifier": "false",
    "NO_UPDATE_NOTIFIER": "1",
    # A file with a second name may be changed under that one, and no cache lies beside a project.
    "UV_LINK_MODE": "copy",
}
CACHES: Final = {
    "BUN_INSTALL_CACHE_DIR": "bun",
    "CCACHE_DIR": "ccache",
    "GOCACHE": "go",
    "PIP_CACHE_DIR": "pip",
    "PNPM_HOME": "pnpm",
    "UV_CACHE_DIR": "uv",
    "YARN_CACHE_FOLDER": "yarn",
    "YARN_GLOBAL_FOLDER": "berry",
    "npm_config_cache": "npm",
    "pnpm_config_store_dir": "pnpm/store",
}
"""Where package managers and compilers keep what they made or fetched. The user's own place is
closed, and most do nothing without one, or take one in the workspace. Versions of pnpm read one
variable or the other."""
_CACHE: Final = ".cache"
"""All of it does not count as what a session keeps in `/tmp`: the disk has a limit of its own."""
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
        """Return the arguments of bubblewrap, for right after the root.

        Args:
            sockets: the directory of the sandbox's own sockets.
        """
        found: list[str] = []
        for place in self.places:
            found += ["--bind", self.directory, place]
        for path in (*self.shown, sockets):
            if path not in self.places and is_in(path, *self.places):
                found += ["--ro-bind-try", path, path]
        return tuple(found)

    def is_full(self) -> bool:
        """Return whether it holds more than a session may keep, or the size is unknown."""
        entries, size, pending = 0, 0, [self.directory]
        caches = f"{self.directory}/{_CACHE}"
        try:
            while pending:
                with os.scandir(pending.pop()) as found:
                    for entry in found:
                        entries += 1
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entries > MOST_ENTRIES or size > MOST_BYTES:
                            return True
                        if entry.is_dir(follow_symlinks=False) and entry.path != caches:
                            pending.append(entry.path)
        except FileNotFoundError:
            # A process there may be deleting files.
            return entries > MOST_ENTRIES // 2
        except OSError:
            return True
        return False


class PrivateFolder(Struct, frozen=True):
    """A folder of the home directory that a server has for itself."""

    directory: str
    """The directory on the machine; it is the server's own and lasts."""
    place: str
    """The path of the folder inside the sandbox; real."""

    def mount(self) -> tuple[str, ...]:
        """Return the arguments of bubblewrap, for right after the root."""
        return ("--bind", self.directory, self.place)


_MOST_COPIED: Final = (64, 1 << 20)
"""The most files and bytes of a folder that a private one begins with."""


def make_folder(folder: PrivateFolder) -> None:
    """Make a private folder, with what a small folder in its place holds, and the place itself.

    Raises:
        OSError: it cannot be made.
    """
    # A sandbox cannot make the place: everything around it is read-only there.
    Path(folder.place).mkdir(mode=0o700, parents=True, exist_ok=True)
    if Path(folder.directory).is_dir():
        return
    fresh = Path(f"{folder.directory}.new-{os.getpid()}")
    fresh.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh.mkdir(mode=0o700)
    try:
        if begins_whole(folder.place):
            shutil.copytree(folder.place, fresh, symlinks=True, dirs_exist_ok=True)
        fresh.rename(folder.directory)
    except (OSError, shutil.Error):
        shutil.rmtree(fresh, ignore_errors=True)
        if not Path(folder.directory).is_dir():
            raise


def begins_whole(place: str) -> bool:
    """Return whether a private folder would begin with all that is in its place.

    That is so where nothing is there, or a few plain files and directories.
    """
    count, size, pending = 0, 0, [place]
    try:
        while pending:
            with os.scandir(pending.pop()) as found:
                for entry in found:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(entry.path)
                    elif not stat.S_ISREG(status.st_mode):
                        return False
                    count, size = count + 1, size + status.st_size
                    if count > _MOST_COPIED[0] or size > _MOST_COPIED[1]:
                        return False
    except FileNotFoundError:
        return count == 0
    except OSError:
        return False
    return True


def private_tmp(
    directory: str, profile: SandboxProfile, needed: Iterable[str]
) -> PrivateTmp | None:
    """Return the `/tmp` of a server, or None if it needs the machine's own.

    Args:
        directory: the server's own, on the machine.
        profile: of its sandbox.
        needed: paths that have to stay as they are inside.
    """
    ours = (sys.executable, sys.base_prefix, str(Path(inside.__file__).parent))
    named = [*profile.allow_write, *profile.allow_read, *needed, *ours]
    paths = {path for one in named if one.startswith("/") for path in (one, os.path.realpath(one))}
    real = dict.fromkeys(os.path.realpath(place) for place in PLACES if Path(place).is_dir())
    places = [place for place in real if not any(is_in(place, path) for path in paths)]
    if not places:
        return None
    shown = {
        f"{place}/{path[len(place) + 1 :].split('/')[0]}"
        for place in places
        for path in paths
        if path != place and is_in(path, place)
    }
    return PrivateTmp(directory, tuple(places), tuple(sorted(shown)))


def steady(temporary: str) -> Mapping[str, str]:
    """Return variables by which package managers and compilers work in a sandbox.

    Args:
        temporary: the directory for what they keep, or empty if there is none of its own.
    """
    if not temporary:
        return _STEADY
    return _STEADY | {name: f"{temporary}/{_CACHE}/{one}" for name, one in CACHES.items()}


STEADY: Final = frozenset({*_STEADY, *CACHES})
"""Their names."""


def named_paths(words: Sequence[str]) -> list[str]:
    """Return the absolute paths that words of a command or values of variables name."""
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
