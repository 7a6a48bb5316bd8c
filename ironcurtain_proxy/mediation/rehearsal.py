"""The decision on a call without servers, agent or record, for `explain`.

It uses the parts that `serve` joins: the same gathering of facts, judgement and sandboxes. Only
the annotations of the servers' tools are known here, neither their hints nor their current
schemas.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.approval.overlay import tool_names
from ironcurtain_proxy.facts.live_catalogue import CataloguedTool
from ironcurtain_proxy.facts.resolver import Resolver
from ironcurtain_proxy.mediation.judge import NamedTool, Overlay, judge
from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.decision import Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.operation import Operation, RequestId
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import Facts, Gathered
from ironcurtain_proxy.model.values import Arguments


class RehearsedCall(Struct, frozen=True):
    """The result for a call before any reviewer is asked."""

    gathered: Gathered
    judged: Judgement
    blocked: Ground | None
    """The reason why no reviewer is asked about an escalated call: no approval can open the sandbox
    for it."""
    opened: tuple[str, ...] = ()
    """The access that a second instance of the server would get once the call is approved."""
    uncontained: str | None = None
    """The reason why containment leaves the call to reviewers; empty: containment settles the call;
    None: containment is off."""

    @property
    def decision(self) -> Decision:
        """The decision that the agent meets."""
        return self.judged.decision if self.blocked is None else Deny(self.blocked)


FactsOf: TypeAlias = Callable[
    [Callable[[str, str], CataloguedTool | None], Callable[[str, str], str | None]], Resolver
]
"""Makes the gatherer of facts from the offered tools and the argument that holds a shell command.
Both are looked up by the operator's server name and the server's own tool name."""


class Rehearsal(Struct, frozen=True, kw_only=True):
    """Judges calls as `serve` would judge them on this machine."""

    policy: Policy
    overlay: Overlay
    servers: Mapping[str, str]
    """The server names used in annotations, by the operator's server name."""
    has_prefix: bool
    """Whether the agent's names of tools carry their server's."""
    annotations: Mapping[tuple[str, str], ToolAnnotation]
    """Annotations by that name and the tool's name."""
    opening: Callable[[str, Facts], SandboxOpening | str | None]
    """The access that a call needs beyond its server's sandbox, by the operator's server name; a
    text: what no approval can grant."""
    uncontained: Callable[[str, Facts, Judgement], str | None]
    """Gives the reason why containment leaves a call to reviewers; empty: containment settles the
    call, or None if containment is off."""
    facts_of: FactsOf

    async def of_call(
        self, server: str, tool: str, arguments: Arguments, *, is_unique: bool
    ) -> RehearsedCall:
        """Return the decision that would be made on a call.

        Args:
            server: the operator's name of the server.
            tool: the server's name of the tool.
            arguments: as the agent would send them.
            is_unique: whether the proxy knows that no other server has a tool of this name.
        """
        names = tool_names(server, tool, is_unique=is_unique)
        declared = self.overlay.declared(names)
        command = None if declared is None else declared.command_argument
        facts = self.facts_of(self._lookup, lambda _server, _tool: command)
        call = Operation(
            request_id=RequestId("explained"),
            exposed_name=self._exposed(server, tool),
            server=server,
            tool=tool,
            arguments=arguments,
            params={},
        )
        gathered = await facts.gather(call)
        judged = judge(gathered, self.policy, self.overlay, lambda: NamedTool(server, tool, names))
        return self._outcome(server, gathered, judged)

    async def of_operation(self, operation: Operation) -> RehearsedCall:
        """Return the decision that would be made on an operation that is no tool call.

        A view is taken for declared: which tools declare one is known to the running server alone.
        """
        facts = self.facts_of(self._lookup, lambda _server, _tool: None)
        facts.declares_view = lambda _server, _uri: True
        gathered = await facts.gather(operation)
        named = NamedTool(operation.server, operation.tool, frozenset())
        judged = judge(gathered, self.policy, self.overlay, lambda: named, operation.method)
        return self._outcome(operation.server, gathered, judged)

    def _outcome(self, server: str, gathered: Gathered, judged: Judgement) -> RehearsedCall:
        if not isinstance(gathered, Facts) or not isinstance(judged.decision, Escalate):
            return RehearsedCall(gathered, judged, None)
        opening = self.opening(server, gathered)
        return RehearsedCall(
            gathered,
            judged,
            blocked=Ground("sandbox", opening) if isinstance(opening, str) else None,
            opened=opening.words() if isinstance(opening, SandboxOpening) else (),
            uncontained=self.uncontained(server, gathered, judged),
        )

    def _exposed(self, server: str, tool: str) -> str:
        return f"{server}__{tool}" if self.has_prefix else tool

    def _lookup(self, server: str, tool: str) -> CataloguedTool:
        """Return the tool as its annotation describes it, as if its server offered it."""
        known_as = self.servers[server]
        annotation = self.annotations.get((known_as, tool))
        described = CataloguedTool.described(server, known_as, tool, annotation)
        return replace(described, exposed_name=self._exposed(server, tool))
