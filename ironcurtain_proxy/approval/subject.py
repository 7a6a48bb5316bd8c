"""What the overlay judges: a call with all that is known of its tool. Pure.

Everything here describes; nothing decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.capability import Capability, ToolDeclaration
from ironcurtain_proxy.model.decision import Standing
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.request import AccessRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One call to one tool."""

    server: str
    """The operator's name of the server."""
    tool: str
    names: frozenset[str]
    """What stands for this tool where tools are listed; see `tool_names`."""
    request: AccessRequest
    """The facts: what the arguments name, by role."""
    declared: ToolDeclaration | None = None
    """What the operator says of the tool."""
    by_arguments: frozenset[Capability] = frozenset()
    """What the operator's function for the tool says of these arguments."""
    command: frozenset[Capability] = frozenset()
    """What the shell command in the arguments needs; empty if there is none."""
    only_reads_command: bool = False
    """Every program of that command is known, and none does more than read."""
    blocked_programs: tuple[str, ...] = ()
    """The programs it would run of those that the profile blocks."""
    hints: Mapping[str, Json] | None = None
    """The server's own `annotations` of the tool: untrusted, so they may only add."""
    pushes: bool = False
    """Whether the call sends to a git remote."""
    standing: Standing = field(default_factory=Standing)
    """What a person had settled beforehand."""

    @property
    def roles(self) -> frozenset[ArgumentRole]:
        """Every role of the arguments, also of those that the call leaves out.

        An argument that was left out may still be filled in by the server.
        """
        return frozenset([role for fact in self.request.arguments for role in fact.roles])


def tool_names(server: str, tool: str, *, is_unique: bool) -> frozenset[str]:
    """The names an operator may write for a tool.

    Args:
        server: the operator's name of the server.
        tool: the server's name of the tool.
        is_unique: whether no other server has a tool of this name.
    """
    qualified = f"{server}/{tool}"
    return frozenset({qualified, tool} if is_unique else {qualified})
