"""Access that was approved for one call beyond its server's sandbox."""

from dataclasses import dataclass, field

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
