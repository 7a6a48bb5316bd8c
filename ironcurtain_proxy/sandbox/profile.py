"""The sandbox profile of a server: its paths, its hosts, its limits, and refused system calls.

It comes from the operator's entry of the server and from the policy: the sandbox allows what a rule
can allow. `limits` in the section `sandbox` of an entry bounds the use of the machine.

System calls are refused by a seccomp filter.

A set-uid file runs with its owner's rights, whoever starts it. A server that makes one in the
workspace has a lasting way out of its sandbox. So each call that gives a mode refuses set-uid and
set-gid, and calls that give a mode where the filter cannot see it are refused (`openat2`,
`io_uring`). Root in a sandbox could give a file capabilities instead, which are an extended
attribute: those are refused, too. To a server they are refused whoever it runs as: an access list
can let other users write what the host makes later, a label can say what a program may do, and no
look at modes sees either. A view is looked through before its changes come in.

Other things belong to the machine, not to the sandbox: the kernel's keys of a user (`keyctl`), the
calls by which a program looks into the kernel or other programs where the machine's settings let it
(`bpf`, `perf_event_open`), and datagram sockets, which reach any socket that has a path. srt
refuses to make a unix socket, but not a pair of them, and one socket of a datagram pair reaches the
system log and other listeners.
The sockets of a stream pair stay connected to each other. The pairs have a filter of their own, for
the server alone: the relays of srt, which lead to the allowed hosts, need a datagram pair.

One call sets blocks aside for a file, and could fill a disk before anybody has looked how much is
left. It is refused as by a file system without it: programs write instead.

Processes of a server's sandbox stand still between calls (see `standstill`), and a stopped process
goes on when it gets SIGCONT. So nothing may have the kernel send that signal, or one that kills,
later: a timer with a signal of one's choice, a message queue's or a file's notification, a parent's
or a child's end. `clone3` has its signal where no filter sees it; the C libraries fall back.

A lease on a file makes whoever opens it wait, the user's programs outside as well, and needs no
right but to read it: it is refused.

Calls under other numbers, those of 32-bit programs, are refused altogether.
"""

import errno
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct, field, toml
from msgspec.structs import replace

from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, RealPath, object_of

# --- system calls

_SET_ID: Final = 0o6000
_MAKES: Final = 0o100 | 0o20000000
"""O_CREAT, O_TMPFILE: without them the mode of an `open` means nothing, and may be anything."""

_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
"""The offsets in the data of a filter (`struct seccomp_data`)."""
_LOAD, _EQUAL, _AT_LEAST, _HAS, _AND, _END = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000
_Steps: TypeAlias = list[tuple[int, int, int, int]]
_PASS: Final = (_END, 0, 0, _ALLOW)
_KIND, _DATAGRAM, _RAW = 0xF, 2, 3
"""The kinds of a socket, without its flags. A raw unix socket is one for datagrams."""
_IPV4, _IPV6, _NETLINK = 2, 10, 16
"""The families of sockets that a closed network has a use for."""
_CLONE3, _NEW_USER = 435, 0x10000000
_SIGCONT, _EXIT_SIGNAL = 18, 0xFF
"""The signal that wakes what is stopped, and where the flags of `clone` have the one at the end."""
_SETS_SIGNAL: Final = 10
"""F_SETSIG: the signal that tells of a file, such as at another process's use of it."""
_LEASES, _DELEGATES = 1024, 1040
"""F_SETLEASE, F_SETDELEG: who opens the file waits, up to 45 seconds, until it is let go of."""
_AT_PARENTS_END: Final = 1
"""PR_SET_PDEATHSIG."""
_RELEASES: Final = 0x02 | 0x08
"""FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE: they take blocks from a file, and add none."""
_RESERVES: Final = (0x40305828, 0x4030582A, 0x40305839)
"""FS_IOC_RESVSP, FS_IOC_RESVSP64, FS_IOC_ZERO_RANGE: the older way to the same."""
_X32: Final = 0x40000000
"""The first number of another calling convention of an x86-64 kernel."""


class _Machine(Struct, frozen=True, kw_only=True):
    arch: int
    modes: Mapping[int, int]
    """Calls that set a mode, each with the place of the mode among its arguments."""
    opens: Mapping[int, int]
    """Calls that set a mode if they make a file, each with the place of their flags. The mode is
    the next argument."""
    attributes: tuple[int, ...]
    """Calls that set an extended attribute."""
    kernels: tuple[int, ...]
    """`add_key`, `request_key`, `keyctl`, `bpf`, `perf_event_open`, `userfaultfd`, `syslog`,
    `fanotify_init`, `open_by_handle_at`, `kexec_load`, `kexec_file_load`."""
    pair: int
    """`socketpair`."""
    socket: int
    clone: int
    unshare: int
    allocates: int
    """`fallocate`."""
    controls: int
    """`ioctl`."""
    notifies: tuple[int, int]
    """`timer_create`, `mq_notify`."""
    fcntl: int
    prctl: int


_UNSEEN: Final = (437, 425)
"""`openat2` and `io_uring_setup`, everywhere: programs do without them."""


@cache
def _machines() -> Mapping[str, _Machine]:
    table = Path(__file__).with_name("machines.toml").read_bytes()
    return toml.decode(table, type=dict[str, _Machine], strict=False)


def refused_calls(machine: str) -> bytes | None:
    """Return the filter of a server, or None if nothing is known of such a machine.

    Args:
        machine: the output of `uname -m`.
    """
    return _filter(machine, lambda one: [*_refused(one, attributes=True), *_refused_wakes(one)])


def refused_in_closure(machine: str, *, is_root: bool) -> bytes | None:
    """Return the filter for a command that needs no relay and no namespace, or None.

    It refuses what `refused_calls` and `refused_pairs` refuse, each socket that is not of the
    internet or of the kernel's routing, and new namespaces of users. `clone3` has its flags where
    no filter sees them; the C libraries fall back to `clone`.

    Args:
        machine: as above.
        is_root: whether the command is root's, whose processes have capabilities there.
    """
    return _filter(machine, lambda one: [*_refused(one, attributes=is_root), *_refused_ways(one)])


def _refused_ways(known: _Machine) -> _Steps:
    program = [
        *_refused_pairs(known),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 1, _CLONE3),
        _refuse(errno.ENOSYS),
        (_EQUAL, 0, 6, known.socket),
        (_LOAD, 0, 0, _argument(0)),
        *[(_EQUAL, left, 0, one) for left, one in ((3, _IPV4), (2, _IPV6), (1, _NETLINK))],
        _refuse(errno.EPERM),
        _PASS,
    ]
    for number in (known.clone, known.unshare):
        program += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _argument(0)),
            (_HAS, 0, 1, _NEW_USER),
            _refuse(errno.EPERM),
            _PASS,
        ]
    return program


def _refused(known: _Machine, *, attributes: bool) -> _Steps:
    """Return the steps of `refused_calls`. Behind them the number of the call is loaded."""
    program = [
        *[(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, known.arch), _refuse(errno.ENOSYS)],
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _refuse(errno.ENOSYS),
    ]
    for number in (*_UNSEEN, *known.kernels):
        program += [(_EQUAL, 0, 1, number), _refuse(errno.ENOSYS)]
    for number in known.attributes if attributes else ():
        program += [(_EQUAL, 0, 1, number), _refuse(errno.EOPNOTSUPP)]
    program += [
        (_EQUAL, 0, 4, known.allocates),
        (_LOAD, 0, 0, _argument(1)),
        (_HAS, 1, 0, _RELEASES),
        _refuse(errno.EOPNOTSUPP),
        _PASS,
        (_EQUAL, 0, len(_RESERVES) + 3, known.controls),
        (_LOAD, 0, 0, _argument(1)),
        *[(_EQUAL, left, 0, one) for left, one in zip((3, 2, 1), _RESERVES, strict=True)],
        _PASS,
        _refuse(errno.EOPNOTSUPP),
        (_EQUAL, 0, 6, known.fcntl),
        (_LOAD, 0, 0, _argument(1)),
        *[(_EQUAL, left, 0, one) for left, one in ((2, _SETS_SIGNAL), (1, _LEASES))],
        (_EQUAL, 0, 1, _DELEGATES),
        _refuse(errno.EINVAL),
        _PASS,
    ]
    for number, place in known.modes.items():
        program += [(_EQUAL, 0, 4, number), *_mode(place)]
    for number, place in known.opens.items():
        program += [
            (_EQUAL, 0, 6, number),
            (_LOAD, 0, 0, _argument(place)),
            (_HAS, 0, 3, _MAKES),
            *_mode(place + 1)[:3],
            _PASS,
        ]
    return program


def _refused_wakes(known: _Machine) -> _Steps:
    """Return the steps that refuse what wakes a stopped process later, behind `_refused`."""
    return [
        *[
            step
            for number in (*known.notifies, _CLONE3)
            for step in ((_EQUAL, 0, 1, number), _refuse(errno.ENOSYS))
        ],
        (_EQUAL, 0, 6, known.prctl),
        (_LOAD, 0, 0, _argument(0)),
        (_EQUAL, 0, 3, _AT_PARENTS_END),
        (_LOAD, 0, 0, _argument(1)),
        (_EQUAL, 0, 1, _SIGCONT),
        _refuse(errno.EINVAL),
        _PASS,
        (_EQUAL, 0, 4, known.clone),
        (_LOAD, 0, 0, _argument(0)),
        (_AND, 0, 0, _EXIT_SIGNAL),
        (_EQUAL, 0, 1, _SIGCONT),
        _refuse(errno.EINVAL),
    ]


def refused_pairs(machine: str) -> bytes | None:
    """Return the filter that refuses pairs of datagram sockets, or None for an unknown machine.

    It is installed beside the filter of the other calls.
    """
    return _filter(machine, _refused_pairs)


def _refused_pairs(known: _Machine) -> _Steps:
    return [
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 6, known.pair),
        (_LOAD, 0, 0, _argument(1)),
        (_AND, 0, 0, _KIND),
        (_EQUAL, 1, 0, _DATAGRAM),
        (_EQUAL, 0, 1, _RAW),
        _refuse(errno.EPERM),
        _PASS,
    ]


def _filter(machine: str, refused: Callable[[_Machine], _Steps]) -> bytes | None:
    known = _machines().get(machine)
    if known is None:
        return None
    return b"".join([struct.pack("HBBI", *step) for step in (*refused(known), _PASS)])


def _mode(place: int) -> _Steps:
    return [
        (_LOAD, 0, 0, _argument(place)),
        (_HAS, 0, 1, _SET_ID),
        _refuse(errno.EPERM),
        _PASS,
    ]


def _refuse(error: int) -> tuple[int, int, int, int]:
    return (_END, 0, 0, _REFUSE | error)


def _argument(place: int) -> int:
    """Return the low half of an argument: both machines have it first."""
    return _ARGUMENTS + 8 * place


# --- the profile

# --- limits


MEBIBYTE: Final = 1 << 20


class SandboxLimits(Struct, frozen=True, kw_only=True):
    """The limits of all processes of a sandbox together, except `open_files`."""

    processes: int = 4096
    """Processes and threads at a time: a large build fits, and a machine goes on with as many."""
    open_files: int = 65_536
    """The most open files of one process."""
    memory_mb: int | None = None
    """Mebibytes of memory; None: three quarters of the machine's."""
    free_disk_mb: int = 1024
    """The space that stays free where the sandbox may write, or 0 if there is none."""

    def __str__(self) -> str:
        memory = "3/4 of the" if self.memory_mb is None else f"{self.memory_mb:,} MiB of"
        return (
            f"{self.processes} processes, {memory} memory, "
            f"{self.open_files} open files each, {self.free_disk_mb:,} MiB of disk left free"
        )


def shown_limits(servers: Iterable[ServerSpec]) -> Iterator[str]:
    """Yield the limits of all servers that may be confined, a line for each set of limits."""
    names: dict[SandboxLimits, list[str]] = {}
    for spec in servers:
        if spec.sandbox is not False:
            section = spec.sandbox.get("limits") if isinstance(spec.sandbox, Mapping) else None
            limits = limits_of(object_of(section))
            names.setdefault(limits, []).append(spec.name)
    for limits, those in names.items():
        yield f"{', '.join(those)}: {limits}"


def limits_of(section: Mapping[str, Json]) -> SandboxLimits:
    """Return the limits of an entry's section, whose values were checked when it was read."""
    standard = SandboxLimits()
    return SandboxLimits(
        processes=_number(section, "processes", standard.processes),
        open_files=_number(section, "openFiles", standard.open_files),
        memory_mb=_number(section, "memoryMb", 0) or None,
        free_disk_mb=_number(section, "freeDiskMb", standard.free_disk_mb),
    )


def _number(section: Mapping[str, Json], key: str, standard: int) -> int:
    said = section.get(key)
    return said if isinstance(said, int) and not isinstance(said, bool) else standard


# --- profile


_OPENED_BY_SRT: Final = (".npm/_logs", ".claude/debug")
"""Directories of the user that srt lets every sandbox write in: all servers share them."""


class SandboxProfile(Struct, frozen=True, kw_only=True):
    """Paths are absolute and real; what is not named may be read, and not be written."""

    allow_write: tuple[str, ...] = ()
    allow_read: tuple[str, ...] = ()
    """Readable paths inside unreadable directories."""
    deny_read: tuple[str, ...] = ()
    deny_write: tuple[str, ...] = ()
    lent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Paths of `deny_read` that an approval may open, by the program that needs them."""
    allowed_domains: tuple[str, ...] = ()
    denied_domains: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    """The services, as `host:port`, that the server finds on its own loopback: see `relay`."""
    limits: SandboxLimits = field(default_factory=SandboxLimits)

    def may_write(self, path: RealPath) -> bool:
        """Return whether the server itself would be let."""
        return is_in(str(path), *self.allow_write) and not (
            is_in(str(path), *self.deny_write) or self._is_closed(path)
        )

    def may_read(self, path: RealPath) -> bool:
        """Return whether the server itself would be let."""
        return not self._is_closed(path)

    @property
    def has_network(self) -> bool:
        """Whether anything outside of the sandbox can be reached."""
        return bool(self.allowed_domains or self.services)

    def may_reach(self, host: str) -> bool:
        """Return whether the network proxy of the sandbox lets the server reach a host.

        Args:
            host: in the canonical spelling of the WHATWG: lower case, an IPv6 address in brackets.
        """
        name = host.removesuffix(".")
        return _is_named(name, self.allowed_domains) and not _is_named(name, self.denied_domains)

    def keeps_closed(self, path: RealPath) -> bool:
        """Return whether the path is closed, so that no approval of a call opens it."""
        return is_in(str(path), *self.deny_write) or self._is_closed(path)

    def forbids(self, host: str) -> bool:
        """Return whether the operator named it as one that is never reached."""
        return _is_named(host.removesuffix("."), self.denied_domains)

    def without_writing(self, paths: Iterable[str]) -> "SandboxProfile":
        """Return the profile with these paths closed for writing."""
        closed = [path for path in paths if self.may_write(RealPath.from_text(path))]
        return replace(self, deny_write=(*self.deny_write, *closed))

    def _is_closed(self, path: RealPath) -> bool:
        # As srt does it (tried): of nested directories the innermost counts.
        closed = _depth(path, self.deny_read)
        return closed > 0 and closed >= _depth(path, (*self.allow_read, *self.allow_write))


class Hidden(Struct, frozen=True, kw_only=True):
    """The credentials that a sandbox hides. All paths are absolute and real."""

    closed: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    """What stays readable inside closed directories."""
    lent: Mapping[str, tuple[str, ...]] = {}
    """The hidden paths that each program needs for what it does outside the machine."""


NOTHING_HIDDEN: Final = Hidden()


class SandboxSurroundings(Struct, frozen=True, kw_only=True):
    """The conditions of a server besides its own entry."""

    home: str
    own: tuple[str, ...]
    """The proxy's files, which no server may see: configuration, policy, state, audit log."""
    code: tuple[str, ...]
    """The proxy's program: may be read and run, but not changed."""
    keys: tuple[str, ...]
    """The user's keys, closed unless the entry says otherwise."""
    credentials: Hidden = NOTHING_HIDDEN
    """The user's other credentials, likewise."""
    real: Callable[[str], str]
    """Gives the real path of a path, because srt opens no link."""
    workspace: str | None
    writable: tuple[str, ...]
    """Directories that rules may let this server change."""
    never: tuple[str, ...] = ()
    """Hosts to which this server reports about its use, and which its work does not need."""


def profile_of(spec: ServerSpec, around: SandboxSurroundings) -> SandboxProfile:
    """Return the profile of a server that is to be confined and has a working directory.

    The entry's `denyRead` takes the place of the user's keys. No entry opens the proxy's files.
    """
    entry = spec.sandbox if isinstance(spec.sandbox, Mapping) else {}
    files = object_of(entry.get("filesystem"))
    network = object_of(entry.get("network"))
    said = {key: _paths(files, key, around) for key in files}
    mine = (spec.cwd or "/", *([around.workspace] if around.workspace else ()), *around.writable)
    own = tuple([path for path in around.own if path != "/"])
    opened = {
        key: [path for path in said.get(key, ()) if not is_in(path, *own)]
        for key in ("allowWrite", "allowRead")
    }
    hidden = NOTHING_HIDDEN if "denyRead" in said else around.credentials
    closed = _each((*own, *said.get("denyRead", around.keys), *hidden.closed))
    writable = _each((*mine, *opened["allowWrite"]))
    return SandboxProfile(
        allow_write=writable,
        # The working directory lies in our state directory, and a workspace may lie anywhere.
        allow_read=_each(
            (*mine[: 2 if around.workspace else 1], *opened["allowRead"], *hidden.shown)
        ),
        deny_read=closed,
        # Also not to be written: what does not exist yet, srt does not close for reading. Where a
        # closed directory holds one that is open, writes go nowhere instead.
        deny_write=_each(
            (
                *[
                    path
                    for path in closed
                    if not any(is_in(open_, path) for open_ in writable)
                    # Around credentials nothing is writable, unless the entry opens it.
                    and (path not in hidden.closed or is_in(path, *writable))
                ],
                *around.code,
                *[f"{around.home}/{name}" for name in _OPENED_BY_SRT],
                *said.get("denyWrite", ()),
            )
        ),
        allowed_domains=_strings(network, "allowedDomains"),
        denied_domains=(*_strings(network, "deniedDomains"), *around.never),
        services=_strings(network, "services"),
        limits=limits_of(object_of(entry.get("limits"))),
        lent=hidden.lent,
    )


def _strings(section: Mapping[str, Json], key: str) -> tuple[str, ...]:
    found = section.get(key)
    return tuple([one for one in found if isinstance(one, str)]) if isinstance(found, list) else ()


def _paths(section: Mapping[str, Json], key: str, around: SandboxSurroundings) -> tuple[str, ...]:
    return tuple([around.real(_absolute(text, around.home)) for text in _strings(section, key)])


def _absolute(text: str, home: str) -> str:
    # srt takes `~` in some lists for a directory of that name.
    if text == "~" or text.startswith("~/"):
        return home + text[1:]
    return text


def _each(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


def _is_named(host: str, patterns: Iterable[str]) -> bool:
    # As srt does it: a wildcard stands for one label or more, and for no part of an address.
    is_address = host.rpartition(".")[2].isdigit()
    for pattern in map(str.lower, patterns):
        if host == pattern:
            return True
        if pattern.startswith("*.") and host.endswith(pattern[1:]) and not is_address:
            return True
    return False


def _depth(path: RealPath, directories: Iterable[str]) -> int:
    """Return the depth of the innermost directory that holds a path, or 0 if none does."""
    holding = [RealPath.from_text(directory) for directory in directories]
    return max([1 + len(one.parts) for one in holding if path.is_within(one)], default=0)


def is_in(path: str, *directories: str) -> bool:
    """Return whether a path is one of some directories, or lies below one."""
    return any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in directories)
