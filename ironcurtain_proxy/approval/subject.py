"""The overlay's input: a call with all that is known of its tool.

This data describes; the overlay decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.capability import Capability, ToolDeclaration
from ironcurtain_proxy.model.decision import PriorConsent
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.request import AccessRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One call of one tool."""

    server: str
    """The operator's name of the server."""
    tool: str
    names: frozenset[str]
    """The names under which lists may mention the tool; see `tool_names`."""
    request: AccessRequest
    """The resources that the arguments name, by role."""
    declared: ToolDeclaration | None = None
    """The operator's declaration of the tool."""
    by_arguments: frozenset[Capability] = frozenset()
    """The capabilities that these arguments add by the operator's table."""
    command: frozenset[Capability] = frozenset()
    """The capabilities that the shell command needs; empty if there is none."""
    only_reads_command: bool = False
    """All programs of that command are known, and each of them only reads."""
    blocked_programs: tuple[str, ...] = ()
    """The programs of that command that the profile blocks."""
    hints: Mapping[str, Json] | None = None
    """The server's own `annotations` of the tool: untrusted, so they only add."""
    pushes: bool = False
    """Whether the call sends to a git remote."""
    standing: PriorConsent = field(default_factory=PriorConsent)
    """The earlier consent of a person."""

    @property
    def roles(self) -> frozenset[ArgumentRole]:
        """Every role of the arguments, including arguments that the call omits.

        The server may fill in an omitted argument.
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
