"""Where a shell command runs: what its paths and its repository are held against."""

from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.model.family import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command runs. All paths are absolute and free of links."""

    workspace: str | None = None
    directory: str | None = None
    """Where the shell starts; None: not known."""
    home: str | None = None
    writable: tuple[str, ...] = ()
    """What the sandbox lets a command write besides the workspace."""
    closed: tuple[str, ...] = ()
    """What lies in that and stays closed for writing."""
    branch: str | None = None
    """The branch that is checked out."""
    push_to: tuple[str, str] | None = None
    """Remote and branch to which `git push` without operands would go."""
    has_repository: bool = False
    """The directory has a `.git` of its own. git takes its configuration from there; in any other
    directory it could take it from files that only look like a repository."""
    meanings: tuple[tuple[Family, str | None], ...] | None = None
    """What the disk says of families whose meaning lies in a file, as it was just read. None: the
    disk was not looked at."""
    hosts: tuple[tuple[Family, tuple[str, ...]], ...] = ()
    """The hosts that families are known to reach."""
    strays: tuple[str, ...] = ()
    """Paths of the workspace that a link leads out of it."""

    def meaning_of(self, family: Family) -> str | None:
        """What the disk says of a family; None if that cannot be told."""
        found = dict(self.meanings or ())
        return found.get(family)

    def hosts_of(self, family: Family) -> tuple[str, ...]:
        """The hosts that a family is known to reach."""
        return dict(self.hosts).get(family, ())

    def every_host(self) -> tuple[str, ...]:
        """Those of all parts of the command, each once."""
        return tuple(dict.fromkeys(host for _, hosts in self.hosts for host in hosts))


NOWHERE: Final = Place()
"""A place of which nothing is known: no path in a command is known to be harmless there."""
