"""The load of a sandbox: measured while it runs, and ended where it is too much.

Theory of operation: the kernel bounds what one process may use, and nobody but root can have it
bound what all of them use, unless a session manager lends a control group. So the proxy looks:

    memory   beyond the limit: the largest processes are killed, until the rest is within it
    processes beyond the limit (root's, which the kernel does not count): the sandbox is ended
    disk     less space left than the reserve: the sandbox is ended

A look reads three small tables of the kernel. Processes are looked at one by one only when the
machine as a whole uses so much that this sandbox could be the cause. The nearer a limit is, the
sooner comes the next look. A program that is faster than a look meets the kernel, which ends
processes of sandboxes first when memory runs out (see `sandbox.inside`).

On a disk that is nearly full when the sandbox starts, the reserve is half of what is left.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.sandbox.profile import MEBIBYTE, SandboxLimits

SOONEST: Final = 0.1
LATEST: Final = 3.0
"""Seconds between two looks."""
_MEMORY_RATE: Final = 4096 * MEBIBYTE
_DISK_RATE: Final = 4096 * MEBIBYTE
_FILES_RATE: Final = 200_000
"""The most that a program can use up in a second."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_LEAST_MEMORY: Final = 2048 * MEBIBYTE
"""The least limit of memory: on a small machine a build still fits, and the kernel decides."""
_RESERVED_FILES: Final = 50_000
_COUNTED: Final = ("Pss_Anon:", "SwapPss:")
_SHARED: Final = "Pss_Shmem:"
"""Of `smaps_rollup`: shared memory is divided among those that share it, files are left out."""
_IN_MEMORY: Final = "/memfd:"


class DiskReserve(Struct, frozen=True):
    """The space to keep free on one file system."""

    directory: str
    bytes: int
    files: int


class Load(Struct, eq=False):
    """The load of one sandbox, from its start to its end."""

    guardian: int
    limits: SandboxLimits
    reserves: tuple[DiskReserve, ...]
    ended: int = 0
    """The number of killed processes."""
    last: str = ""
    """The reason of the last end, in words for operator and agent, or empty if nothing was
    killed."""
    _news: str = ""

    def look(self) -> float:
        """Kill processes beyond a limit. Returns the seconds until the next look. Blocks."""
        short = [reserve for reserve in self.reserves if _left(reserve) < 0]
        if short:
            self.end(
                f"less than {short[0].bytes // MEBIBYTE:,} MiB, or {short[0].files:,} files, are "
                f"left free in {short[0].directory}"
            )
            return SOONEST
        until = [_left(reserve) for reserve in self.reserves]
        used, threads = _machine()
        most = max(_LEAST_MEMORY, _PAGE * os.sysconf("SC_PHYS_PAGES") * 3 // 4)
        if self.limits.memory_mb is not None:
            most = self.limits.memory_mb * MEBIBYTE
        if used >= most or threads >= self.limits.processes:
            used = self._bound(most)
        return min(LATEST, max(SOONEST, min([*until, (most - used) / _MEMORY_RATE])))

    def take_news(self) -> str:
        """Return the end since the previous look, in words for the operator.

        It is empty if there was none.
        """
        news, self._news = self._news, ""
        return news

    def _bound(self, most: int) -> int:
        """Bound the processes of the sandbox. Returns the bytes that they use."""
        found = list(_below(self.guardian, 2 * self.limits.processes))
        if sum(map(_threads, found)) > self.limits.processes:
            self.end(f"it has more than {self.limits.processes:,} processes and threads")
            return most
        files: set[int] = set()
        sizes = sorted([(_memory(pid, files), pid) for pid in found], reverse=True)
        used = sum(size for size, _ in sizes)
        for size, pid in sizes:
            if used <= most:
                break
            name = _name(pid)
            if _kill(pid):
                used -= size
                self._note(
                    1,
                    f"its processes used more than {most // MEBIBYTE:,} MiB of memory, so "
                    f"{name} ({size // MEBIBYTE:,} MiB) was ended",
                )
        return used

    def end(self, why: str) -> None:
        """Kill all processes of the sandbox. The call under way and the operator are told why."""
        # The nearest first: with the first process of its namespace all others end at once.
        found = list(_below(self.guardian, self.limits.processes))
        if found:
            self._note(len(found), f"{why}, so all of its processes were ended")
        for pid in found:
            _kill(pid)

    def _note(self, ended: int, what: str) -> None:
        self.ended += ended
        self._news = self.last = what


def load_of(guardian: int, limits: SandboxLimits, writable: Sequence[str]) -> Load | None:
    """Return the load of the sandbox below a guardian, or None if this system cannot tell.

    Args:
        guardian: its process.
        limits: of the sandbox.
        writable: directories that the sandbox may write in.
    """
    if sys.platform != "linux":
        return None
    reserves: dict[int, DiskReserve] = {}
    for directory in writable if limits.free_disk_mb else ():
        with suppress(OSError):
            device, free = os.stat(directory).st_dev, os.statvfs(directory)  # noqa: PTH116  a string is at hand
            reserves.setdefault(
                device,
                DiskReserve(
                    directory,
                    min(limits.free_disk_mb * MEBIBYTE, free.f_bavail * free.f_frsize // 2),
                    min(_RESERVED_FILES, free.f_favail // 2),
                ),
            )
    return Load(guardian, limits, tuple(reserves.values()))


def _left(reserve: DiskReserve) -> float:
    """Return seconds that the reserve lasts at best, or negative if it is used up."""
    try:
        free = os.statvfs(reserve.directory)
    except OSError:
        return LATEST
    size = free.f_bavail * free.f_frsize - reserve.bytes
    # Some file systems make places for files as they need them, and say that they have none.
    files = free.f_favail - reserve.files if free.f_files else _FILES_RATE * LATEST
    return min(size / _DISK_RATE, files / _FILES_RATE)


def _machine() -> tuple[int, int]:
    """Return the bytes of memory and the threads that the whole machine uses."""
    sizes: dict[str, int] = {}
    threads = 0
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            sizes[name] = int(value.split()[0]) * 1024
        threads = int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].split("/")[1])
    free = sizes.get("MemAvailable", 0)
    swapped = sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0)
    return sizes.get("MemTotal", 0) - free + swapped, threads


def _below(pid: int, most: int) -> Iterator[int]:
    """Yield the processes below one, the nearest first."""
    found = [pid]
    for one in found:
        with suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{one}/task"):  # noqa: PTH208  names are enough
                children = Path(f"/proc/{one}/task/{thread}/children").read_text(encoding="ascii")
                found.extend(map(int, children.split()))
        if len(found) > most:
            break
    yield from found[1:]


def _threads(pid: int) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208  names are enough
    return 0


def _memory(pid: int, files: set[int]) -> int:
    """Return the bytes that a process has to itself, and its part of what it shares.

    It is 0 if it is gone.

    Args:
        pid: of the process.
        files: the inodes of files in memory that were counted for others; it is added to.
    """
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
        own = sum(sizes.get(name, 0) for name in _COUNTED)
        # A file in memory need not be mapped by anybody.
        return own + max(sizes.get(_SHARED, 0), _files_in_memory(pid, files))
    with suppress(OSError, ValueError, IndexError):
        resident = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(resident) * _PAGE
    return 0


def _files_in_memory(pid: int, counted: set[int]) -> int:
    """Return the bytes of the files without a name that a process holds open, each counted once."""
    size = 0
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208  names are enough
            path = f"/proc/{pid}/fd/{name}"
            with suppress(OSError):
                if os.readlink(path).startswith(_IN_MEMORY):  # noqa: PTH115  a string is at hand
                    status = os.stat(path)  # noqa: PTH116  as above
                    if status.st_ino not in counted:
                        counted.add(status.st_ino)
                        size += status.st_blocks * 512
    return size


def _name(pid: int) -> str:
    with suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        return "".join(one if one.isprintable() else "?" for one in name)
    return "a process"


def _kill(pid: int) -> bool:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
