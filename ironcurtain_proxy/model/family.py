"""A family of shell commands: what a part of a command has in common with others of its kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ANY: Final = "\0"
"""In a word: what a shell would put there from the names of files. It stands in no other word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a part of a command has in common with others of its kind.

    Two parts belong to one family exactly if their families are equal.
    """

    program: tuple[str, ...]
    """The program, what it is started by, and its sub-command or task."""
    kept: tuple[str, ...] = ()
    """Options and operands that belong to the family, in the order given where that may matter."""
    around: tuple[str, ...] = ()
    """Assignments before it and redirections. No word of the program may pass for one."""
    directory: str | None = None
    """Where it runs, if that decides what a task means."""
    is_general: bool = True
    """Whether other commands belong to it. If not, an approval holds for this session only."""
    defined_in: tuple[str, ...] = ()
    """Files that may give the task its meaning, while nobody has read them. Empty: they were read,
    or there are none."""
    meaning: str | None = ""
    """What those files say, as a digest; None: it cannot be told, and nothing covers it."""
    hosts: tuple[str, ...] = ()
    """What it reaches, as far as configuration says. An approval is one of these hosts, too."""

    def words(self) -> str:
        """The family as a person would write it."""
        shown = self.spelled([*self.program, *self.kept])
        return shown if self.is_general else f"exactly {shown}"

    def spelled(self, words: Sequence[str]) -> str:
        """Words of the family with what stands around them."""
        before = [one for one in self.around if one[:1] not in {"<", ">", "&"}]
        behind = [one for one in self.around if one[:1] in {"<", ">", "&"}]
        return " ".join([*before, *words, *behind]).replace(ANY, "*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What has to be looked up on the disk to say what a command means."""

    families: tuple[Family, ...] = ()
    """Those whose meaning lies in files."""
    reaching: tuple[tuple[Family, str | None], ...] = ()
    """Those of parts that are known to reach a host, and where each part runs."""
    paths: tuple[str, ...] = ()
    """Paths that may lie in the workspace, as text: whether a link leads them out of it."""
