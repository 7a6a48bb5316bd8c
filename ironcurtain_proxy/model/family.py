"""Families of shell commands: patterns of similar simple commands that one grant covers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import Struct

ANY: Final = "\0"
"""A word that a shell would replace by file names. No other word contains this character."""
ONLY_READS: Final = "commands that only read"
"""Stands in a family for all sub-commands of a program that only read."""

SERVICES: Final = "requests to services"
"""Stands in a family for the programs that ask a service at an address, without files."""
OWN_BRANCH: Final = "any new branch"
"""Stands in a family of pushes for all branches that began in this clone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The pattern of a simple command: what it shares with similar commands.

    Two parts belong to one family exactly if their families are equal.
    """

    program: tuple[str, ...]
    """The program with its launchers and its sub-command or task."""
    kept: tuple[str, ...] = ()
    """Options and operands that belong to the family, in their given order where that may matter.
    """
    around: tuple[str, ...] = ()
    """Assignments and redirections around the command. They are kept apart from the program's
    words."""
    directory: str | None = None
    """The directory of the command, where it decides what a task means."""
    is_general: bool = True
    """Whether the family covers other commands. If not, an approval holds for this session only."""
    defined_in: tuple[str, ...] = ()
    """Files that may define the task and were not read yet. Empty: they were read, or there are
    none."""
    meaning: str | None = ""
    """A digest of those files' content; None: it cannot be determined, and no grant covers the
    command."""
    hosts: tuple[str, ...] = ()
    """The hosts that the command reaches, as configured. An approval covers these hosts too."""
    is_of_remote: bool = False
    """The family speaks of a remote repository: it is the same in every directory where git leads
    there in the same way."""

    wide: tuple[tuple[str, ...], tuple[str, ...]] | None = field(default=None, compare=False)
    """The program and the kept words of a wider family, which an approval is offered for instead;
    None: there is none."""

    def widened(self) -> "Family":
        """Return the wider family, else this one."""
        if self.wide is None:
            return self
        program, kept = self.wide
        return replace(self, program=program, kept=kept, wide=None)

    def words(self) -> str:
        """The family as a person would write it."""
        shown = self.spelled([*self.program, *self.kept])
        return shown if self.is_general else f"exactly {shown}"

    def spelled(self, words: Sequence[str]) -> str:
        """The words of the family with its assignments and redirections."""
        before = [one for one in self.around if one[:1] not in {"<", ">", "&"}]
        behind = [one for one in self.around if one[:1] in {"<", ">", "&"}]
        return " ".join([*before, *words, *behind]).replace(ANY, "*")


class DiskLookups(Struct, frozen=True, kw_only=True):
    """Lookups on the disk that the meaning of a command depends on."""

    families: tuple[Family, ...] = ()
    """Families whose meaning lies in files."""
    reaching: tuple[tuple[Family, str | None], ...] = ()
    """Families of parts that are known to reach a host, and the directory of each part."""
    paths: tuple[str, ...] = ()
    """Paths, as text, that may lie in the workspace and may be led out of it by a link."""
    globs: tuple[str, ...] = ()
    """Directories of the workspace of which a pattern names files."""
    scripts: tuple[str, ...] = ()
    """Files of the workspace that the command runs."""
