"""What was approved for one call beyond what its server's sandbox lets it do."""

from dataclasses import dataclass

from ironcurtain_proxy.model.path import RealPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Hosts and paths that a second instance of a server is let into, and nothing else."""

    hosts: tuple[str, ...] = ()
    paths: tuple[RealPath, ...] = ()
    """What the call may write, create or delete."""

    def words(self) -> tuple[str, ...]:
        """All of it, for the record."""
        return (*[f"host {host}" for host in self.hosts], *[f"write {path}" for path in self.paths])
