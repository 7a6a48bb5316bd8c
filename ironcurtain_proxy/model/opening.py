"""Access that was approved for one call beyond its server's sandbox."""

from dataclasses import dataclass, field
from typing import Final

from ironcurtain_proxy.model.path import RealPath


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOpening:
    """Hosts and paths that a second instance of a server may use for one call."""

    hosts: tuple[str, ...] = ()
    paths: tuple[RealPath, ...] = ()
    """Paths that the call may write, create or delete."""
    reads: tuple[RealPath, ...] = ()
    """Credentials that the call's programs may read."""
    for_later: bool = field(default=False, compare=False)
    """Whether a remembered approval covers later calls, too."""

    def words(self) -> tuple[str, ...]:
        """All hosts and paths as text, for the record."""
        return (
            *[f"host {host}" for host in self.hosts],
            *[f"write {path}" for path in self.paths],
            *[f"read {path}" for path in self.reads],
        )

    def shown(self) -> tuple[str, ...]:
        """Return all hosts and paths for a person, with misleading hosts marked."""
        hosts = [f"host {shown_host(host)}" for host in self.hosts]
        return (*hosts, *self.words()[len(hosts) :])

    def names(self, other: "SandboxOpening | None") -> bool:
        """Return whether every host and path of another opening is part of this one."""
        return other is None or (
            {*self.hosts} >= {*other.hosts}
            and {*self.paths} >= {*other.paths}
            and {*self.reads} >= {*other.reads}
        )


OPENS: Final = "An approval opens for this call"
"""The line of a question that names the whole opening."""

NOTHING_OPENED: Final = SandboxOpening()

_PUNYCODE: Final = "xn--"


def shown_host(host: str) -> str:
    """Return a host for a person, marked if it may look like another one."""
    if host.isascii() and not any(one.startswith(_PUNYCODE) for one in host.lower().split(".")):
        return host
    try:
        looks = host.encode("ascii").decode("idna")
    except UnicodeError:
        looks = host
    return f"{host} (shown as {looks}: letters outside a to z, it may imitate another host)"
