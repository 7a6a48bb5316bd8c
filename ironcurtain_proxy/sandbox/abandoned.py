"""The remains of sandboxes whose proxy and guardians were killed.

Each start looks for directories of sockets that nobody has locked: their proxy and their guardian
are dead. Processes that still run in such a sandbox are killed, and the directory is removed.

The places are shared, so that anybody may have left a trap there. A directory is touched only if
its name, owner and mode are ours, and if it holds only what srt makes there. No link is followed.
The kernel says whether a directory is locked, and by whom.
"""

import fcntl
import os
import re
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.sandbox.directory import NAME, OPEN, places
from ironcurtain_proxy.sandbox.wrapper import CALLS

_SOCKET: Final = re.compile(r"(?:claude|srt)-[A-Za-z0-9-]{1,64}\.sock", re.ASCII)
_FOLDER: Final = re.compile(r"claude-empty-[A-Za-z0-9]{1,16}|empty", re.ASCII)
"""srt's, and where it is tried."""


def remove_abandoned() -> None:
    """Remove the directories of sandboxes whose proxy is dead, and end the processes in them.

    A directory that cannot be read or removed stays, without an error.
    """
    for place in places():
        with suppress(OSError), _opened(place) as parent:
            for name in filter(NAME.fullmatch, os.listdir(parent)):  # noqa: PTH208  of a descriptor
                with suppress(OSError):
                    _remove_if_abandoned(place, parent, name)


def _remove_if_abandoned(place: str, parent: int, name: str) -> None:
    with _opened(name, parent) as directory:
        status = os.fstat(directory)
        if status.st_uid != os.geteuid() or status.st_mode & 0o777 != 0o700:  # noqa: PLR2004  ours
            return
        # Fails while a proxy or a guardian holds it.
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.scandir(directory) as entries:
            found = list(entries)
        if not all(map(_is_of_a_sandbox, found)):
            return
        kill_all_with(f"{place}/{name}")
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, ignore_errors=True, dir_fd=directory)
            else:
                os.unlink(entry.name, dir_fd=directory)
        # Of another directory that somebody may have put there meanwhile, nothing is removed.
        os.rmdir(name, dir_fd=parent)


def _is_of_a_sandbox(entry: os.DirEntry[str]) -> bool:
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISSOCK(mode):
        return _SOCKET.fullmatch(entry.name) is not None
    if stat.S_ISREG(mode):
        return entry.name == CALLS
    return stat.S_ISDIR(mode) and _FOLDER.fullmatch(entry.name) is not None


def kill_all_with(directory: str) -> None:
    """Kill all processes whose `TMPDIR` is a directory: no other processes know its name.

    Processes within the sandbox end with the process outside that made it.
    """
    wanted = b"TMPDIR=" + os.fsencode(directory)
    for entry in os.listdir("/proc"):  # noqa: PTH208  names are enough
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                _kill_if_with(int(entry), wanted)


def _kill_if_with(pid: int, variable: bytes) -> None:
    # Whatever was looked at is what is killed: the descriptor stands for this very process.
    process = os.pidfd_open(pid)
    try:
        proc = Path(f"/proc/{pid}")
        ours = proc.stat().st_uid == os.geteuid()
        if ours and variable in (proc / "environ").read_bytes().split(b"\0"):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)


@contextmanager
def _opened(name: str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, OPEN, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
