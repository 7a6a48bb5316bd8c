"""The policy's decision and what the operator wants to be asked about besides, as one. Pure.

No I/O, no clock, no log. Brings together what is known of the tool; `overlay` decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ironcurtain_proxy.approval.overlay import OverlayRules, judge
from ironcurtain_proxy.approval.subject import Subject
from ironcurtain_proxy.model.argument_capability import (
    ArgumentCapabilities,
    capabilities_by_argument,
)
from ironcurtain_proxy.model.capability import ToolDeclaration
from ironcurtain_proxy.model.decision import Decision, Deny, Escalate, Standing
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.judgement import Judged
from ironcurtain_proxy.model.request import Facts


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool as the operator may speak of it."""

    server: str
    tool: str
    names: frozenset[str]
    """What stands for it where tools are listed (R-35)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Capability profile and approval mode, with what the operator says of tools."""

    rules: OverlayRules | None = None
    """None: the policy's decision is all."""
    declarations: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    """By the tool as the operator wrote it."""
    by_argument: Mapping[str, tuple[ArgumentCapabilities, ...]] = field(default_factory=dict)

    def judge(self, kernel: Decision, facts: Facts, tool: NamedTool, standing: Standing) -> Judged:
        """What is decided of a call.

        Args:
            kernel: the policy's decision.
            facts: what the call names.
            tool: what it calls.
            standing: what a person had settled beforehand.
        """
        if self.rules is None:
            return by_policy_alone(kernel)
        overlaid = judge(kernel, self._subject(facts, tool, standing), self.rules)
        decision = kernel
        if overlaid.denied is not None:
            decision = Deny(overlaid.denied)
        elif overlaid.origins and not isinstance(kernel, Escalate):
            decision = Escalate(overlaid.origins[0].ground)
        return Judged(
            decision=decision, reasons=overlaid.origins, capabilities=overlaid.capabilities
        )

    def _subject(self, facts: Facts, tool: NamedTool, standing: Standing) -> Subject:
        return Subject(
            server=tool.server,
            tool=tool.tool,
            names=tool.names,
            request=facts.request,
            declared=self._declared(tool),
            by_arguments=frozenset(
                [
                    capability
                    for name in tool.names
                    for capability in capabilities_by_argument(
                        self.by_argument.get(name, ()), facts.arguments
                    )
                ]
            ),
            hints=facts.hints,
            pushes=facts.pushes,
            standing=standing,
        )

    def _declared(self, tool: NamedTool) -> ToolDeclaration | None:
        # The longer name first: what was said of this server's tool goes before the bare name.
        for name in sorted(tool.names, key=len, reverse=True):
            if name in self.declarations:
                return self.declarations[name]
        return None


def by_policy_alone(kernel: Decision) -> Judged:
    """The policy's decision, with nothing laid over it."""
    if isinstance(kernel, Escalate):
        reason = OriginReason(origin="policy", ground=kernel.ground)
        return Judged(decision=kernel, reasons=(reason,))
    return Judged(decision=kernel)
