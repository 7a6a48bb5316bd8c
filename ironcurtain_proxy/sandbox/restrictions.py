"""The measured limits of a sandboxed process, read from the kernel's tables about it.

Theory of operation: a configuration says what a sandbox should be; containment relies on what it
is. The process is found by the pipe from which the server reads its calls, starting at the guardian
that was launched. These tables of the process are read:

    /proc/PID/ns         namespaces that differ from ours: mount, network, pid, user, ipc
    /proc/PID/status     a seccomp filter is in force
    /proc/PID/mountinfo  writable mounts of devices that the machine uses, too
    /proc/PID/net/dev    network interfaces besides `lo`

The start time of the process is compared before and after, because the kernel may have reused its
pid. A table that cannot be read or has an unexpected form gives no
`SandboxRestrictions`, and the call is asked about.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.server import SandboxRestrictions
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.private_tmp import PrivateFolder, PrivateTmp

_APART: Final = ("mnt", "net", "pid", "user", "ipc")
"""The namespaces that a confined process shares with no process outside."""
_DEVICES: Final = frozenset(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")
)
_KERNEL: Final = frozenset({"proc", "sysfs", "devpts", "cgroup", "cgroup2", "mqueue"})
"""File systems that hold no files of the machine. `/proc/sys` is closed by the sandbox."""
_DEEPEST: Final = 64
_FILTERED: Final = "2"
"""The value of `Seccomp` in a process's status that means a filter."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class _Mount(Struct, frozen=True):
    point: str
    root: str
    """The directory of the file system that the mount shows."""
    device: str
    kind: str
    is_writable: bool


def restrictions_of(  # noqa: PLR0913  what is mounted, by its kind
    pid: int,
    pipe: int,
    temporary: RealPath | None,
    *,
    may_reach: bool,
    private: PrivateTmp | None = None,
    folders: tuple[PrivateFolder, ...] = (),
    credentials: Sequence[str] = (),
) -> SandboxRestrictions | None:
    """Return the restrictions of the server below a process; None if they cannot be read.

    Args:
        pid: of the process that was started: the server's guardian.
        pipe: the inode of the pipe that the server reads its calls from.
        temporary: the directory that is the server's own and ends with it.
        private: what is mounted over the places for temporary files.
        folders: what is mounted over folders of the home directory.
        credentials: paths that exist and have to be hidden.
        may_reach: whether the sandbox's proxy was told of any host that may be reached.
    """
    try:
        chain = readers(pid, pipe)
        if not chain:
            return None
        server = chain[-1]
        started = [_started(one) for one in chain]
        if not _is_apart(server) or not _is_filtered(server):
            return None
        inside = [one for one in chain if _is_apart(one)]
        if any(_root(one) != "/" for one in inside):
            # A process with another root sees fewer mounts than there are.
            return None
        here = tuple(_mounts(os.getpid()))
        own = () if private is None else [(one, private.directory) for one in private.places]
        places = {**dict(own), **{one.place: one.directory for one in folders}}
        # Of all processes of the chain: a later one cannot hide what an earlier one shows.
        writable = dict.fromkeys([path for one in inside for path in _writable(one, here, places)])
        closed = frozenset.intersection(*[_closed(one) for one in inside])
        bare = dict.fromkeys([path for one in inside for path in _bare(one, credentials, here)])
        interfaces = frozenset[str]().union(*[_interfaces(one) for one in inside])
        # A pid may have been given to another process meanwhile.
        if [_started(one) for one in chain] != started:
            return None
    except (OSError, ValueError, IndexError):
        return None
    return SandboxRestrictions(
        writable=tuple(writable),
        temporary=temporary,
        closed=tuple(sorted(closed)),
        is_offline=not may_reach and interfaces <= {"lo"},
        shown=tuple(map(RealPath.from_text, bare)),
    )


def readers(pid: int, pipe: int) -> list[int]:
    """Return the chain of processes that hold the pipe; the last is the server, or its launcher.

    The sandbox's own programs hand it on, each to one child; what a server starts is no nearer to
    the outside than the server.
    """
    found: list[int] = []
    for _ in range(_DEEPEST):
        holding = [child for child in _children(pid) if _reads(child, pipe)]
        if len(holding) != 1:
            break
        pid = holding[0]
        found.append(pid)
    return found


def _writable(pid: int, here: tuple[_Mount, ...], places: Mapping[str, str]) -> Iterator[RealPath]:
    devices = {mount.device for mount in here}
    for mount in _visible(tuple(_mounts(pid))):
        # What an overlay is laid over is not told by its device.
        is_shared = mount.device in devices or mount.kind == "overlay"
        if not mount.is_writable or not is_shared or _is_kernels(mount):
            continue
        is_private = _is_private(mount, places.get(mount.point), here)
        if not is_private and not is_out_of_reach(mount.point):
            yield RealPath.from_text(mount.point)


def _bare(pid: int, paths: Iterable[str], here: tuple[_Mount, ...]) -> Iterator[str]:
    """Yield the paths at which a process sees the machine's own file system."""
    devices = {one.device for one in here}
    visible = {one.point: one for one in _visible(tuple(_mounts(pid)))}
    for path in paths:
        inmost = next((visible[one] for one in _and_above(path) if one in visible), None)
        # A file is hidden by `/dev/null`.
        if inmost is None or (inmost.root != "/null" and inmost.device in devices):
            yield path


def _closed(pid: int) -> frozenset[RealPath]:
    visible = _visible(tuple(_mounts(pid)))
    return frozenset([RealPath.from_text(one.point) for one in visible if not one.is_writable])


def _root(pid: int) -> str:
    return str(Path(f"/proc/{pid}/root").readlink())


def _started(pid: int) -> str:
    """Return the start time of a process, which identifies it together with its pid."""
    return _text(pid, "stat").rpartition(")")[2].split()[19]


def _reads(pid: int, pipe: int) -> bool:
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/fd/0").readlink()) == f"pipe:[{pipe}]"
    return False


def _children(pid: int) -> Iterator[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  names are enough
            with suppress(FileNotFoundError, ProcessLookupError):
                yield from map(int, _text(pid, f"task/{thread}/children").split())


def _is_apart(pid: int) -> bool:
    own = os.getpid()
    return all(
        Path(f"/proc/{pid}/ns/{name}").readlink() != Path(f"/proc/{own}/ns/{name}").readlink()
        for name in _APART
    )


def _is_filtered(pid: int) -> bool:
    lines = [line.split(":", 1) for line in _text(pid, "status").splitlines()]
    status: Mapping[str, str] = {line[0]: line[1].strip() for line in lines if len(line) > 1}
    return status.get("Seccomp") == _FILTERED and status.get("NoNewPrivs") == "1"


def _interfaces(pid: int) -> frozenset[str]:
    lines = _text(pid, "net/dev").splitlines()
    return frozenset([line.split(":")[0].strip() for line in lines if ":" in line])


def _mounts(pid: int) -> Iterator[_Mount]:
    for line in _text(pid, "mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        words = fields.split(" ")
        yield _Mount(
            point=_unescaped(words[4]),
            root=_unescaped(words[3]),
            device=words[2],
            kind=rest.split(" ")[0],
            is_writable="rw" in words[5].split(","),
        )


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def _visible(mounts: tuple[_Mount, ...]) -> Iterator[_Mount]:
    """Yield the mounts that no later one covers."""
    later: set[str] = set()
    found: list[_Mount] = []
    for mount in reversed(mounts):
        if later.isdisjoint(_and_above(mount.point)):
            found.append(mount)
        later.add(mount.point)
    yield from reversed(found)


def _and_above(point: str) -> Iterator[str]:
    """Yield a path and all directories above it."""
    yield point
    while len(point) > 1:
        point = point.rpartition("/")[0] or "/"
        yield point


def _is_private(mount: _Mount, directory: str | None, here: tuple[_Mount, ...]) -> bool:
    """Return whether a mount shows this directory, the server's own, and nothing else."""
    if directory is None:
        return False
    own = RealPath.from_text(os.path.realpath(directory))
    # Of several mounts at one point the last one is seen; the deepest point holds the directory.
    holding = [one for one in here if own.is_within(RealPath.from_text(one.point))]
    nearest = max(enumerate(holding), key=lambda one: (len(one[1].point), one[0]))[1]
    rest = str(own)[len(nearest.point.rstrip("/")) :]
    return (mount.device, mount.root) == (nearest.device, nearest.root.rstrip("/") + rest)


def is_out_of_reach(point: str) -> bool:
    """Return whether a directory of another user's keeps this user from a mount.

    Bubblewrap leaves such a mount as it is: those of containers below `/var/lib/docker`, say.
    """
    for above in sorted(_and_above(point.rpartition("/")[0] or "/"), key=len):
        if not os.access(above, os.X_OK, effective_ids=True):
            with suppress(OSError):
                return os.stat(above).st_uid != os.geteuid()  # noqa: PTH116  text
            break
    return False


def _is_kernels(mount: _Mount) -> bool:
    return mount.kind in _KERNEL or mount.point in _DEVICES


def _text(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="surrogateescape")
