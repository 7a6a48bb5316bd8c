"""The place where a shell command runs: its directory, repository and writable paths."""

from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.model.family import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The surroundings of a command. All paths are absolute and free of links."""

    workspace: str | None = None
    directory: str | None = None
    """The directory in which the shell starts; None: not known."""
    home: str | None = None
    writable: tuple[str, ...] = ()
    """Paths besides the workspace that the sandbox lets a command write."""
    closed: tuple[str, ...] = ()
    """Paths among `writable` that stay closed for writing."""
    branch: str | None = None
    """The branch that is checked out."""
    push_to: tuple[str, str] | None = None
    """The remote and branch of a `git push` without operands."""
    own_branches: tuple[str, ...] = ()
    """The branches that the command names and that `origin` has from this clone, if at all: none of
    them was fetched, and no tag has such a name."""
    has_repository: bool = False
    """The directory has a `.git` of its own, from which git takes its configuration. In any other
    directory git may take it from files that only look like a repository."""
    runs_hooks: bool = True
    """Whether git may run a hook there, for all that is known."""
    meanings: tuple[tuple[Family, str | None], ...] | None = None
    """The content digests of families whose meaning lies in files, read just now. None: the disk
    was not read."""
    hosts: tuple[tuple[Family, tuple[str, ...]], ...] = ()
    """The hosts that families are known to reach."""
    scripts: tuple[tuple[str, str], ...] = ()
    """The files of the workspace that the command runs, with a digest of each."""
    repository: str | None = None
    """The `.git` directory that the workspace shares with the other worktrees of its repository;
    None: not known."""
    shows_credentials: bool = False
    """git's configuration there holds a password or a token, which `git remote -v` shows."""
    strays: tuple[str, ...] = ()
    """Paths of the workspace that a link leads out of the workspace."""

    def meaning_of(self, family: Family) -> str | None:
        """The digest of a family's meaning; None: it cannot be determined."""
        found = dict(self.meanings or ())
        return found.get(family)

    def hosts_of(self, family: Family) -> tuple[str, ...]:
        """The hosts that a family is known to reach."""
        return dict(self.hosts).get(family, ())

    def every_host(self) -> tuple[str, ...]:
        """The hosts of all parts of the command, each once."""
        return tuple(dict.fromkeys(host for _, hosts in self.hosts for host in hosts))


NOWHERE: Final = Place()
"""A place about which nothing is known, where every path in a command counts as dangerous."""
