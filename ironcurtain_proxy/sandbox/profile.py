"""The sandbox profile of a server: its readable and writable paths, its hosts, and its limits.

It comes from the operator's entry of the server and from the policy: the sandbox allows what a rule
can allow. `limits` in the section `sandbox` of an entry bounds the use of the machine.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, RealPath, object_of

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
