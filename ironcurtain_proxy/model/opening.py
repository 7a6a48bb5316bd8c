"""Access that was approved for one call beyond its server's sandbox."""

from msgspec import Struct

from ironcurtain_proxy.model.path import RealPath


class Opening(Struct, frozen=True, kw_only=True):
    """Hosts and paths that a second instance of a server may use for one call."""

    hosts: tuple[str, ...] = ()
    paths: tuple[RealPath, ...] = ()
    """Paths that the call may write, create or delete."""

    def words(self) -> tuple[str, ...]:
        """All hosts and paths as text, for the record."""
        return (*[f"host {host}" for host in self.hosts], *[f"write {path}" for path in self.paths])
