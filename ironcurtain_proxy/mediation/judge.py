"""The judgement of a call before anyone is asked: policy and overlay joined.

Mediator and `explain` share it, so that an explanation always shows what `serve` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from ironcurtain_proxy.approval.judging import NamedTool, Overlay, by_policy_alone
from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.decision.combining import gravest_first
from ironcurtain_proxy.decision.prior_consent import standing_of
from ironcurtain_proxy.mediation.in_force import PolicyInForce
from ironcurtain_proxy.model.decision import Deny, Escalate, Ground, effect_of
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.judgement import Judged
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import Facts, Gathered, Unresolvable
from ironcurtain_proxy.ports import FactGatherer, ToolFinder


def judge(
    gathered: Gathered, policy: Policy, overlay: Overlay, tool: Callable[[], NamedTool]
) -> Judged:
    """Join the policy's decision with the operator's other reasons to ask.

    Args:
        gathered: the facts of the call, or why there are none.
        policy: decides.
        overlay: may only make the decision more severe.
        tool: finds out what is called, by all its names; asked only if it matters.
    """
    match gathered:
        case Unresolvable(ground=ground):
            return Judged(decision=Deny(ground))
        case Facts(request=request):
            kernel = gravest_first(authorize(request, policy))
            if overlay.rules is None:
                return by_policy_alone(kernel)
            return overlay.judge(
                kernel, gathered, tool(), lambda: standing_of(request, policy, kernel)
            )
        case _:
            assert_never(gathered)


def _unasked(judged: Judged) -> Judged:
    """The judgement of a completion. Nobody is asked at each letter that a person types."""
    if not isinstance(judged.decision, Escalate):
        return judged
    asked = judged.decision.ground.reason
    reason = f"Nobody is asked about completions, and of what it completes is said: {asked}"
    return Judged(decision=Deny(Ground("completion-of-asked", reason)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges the calls of one session."""

    tools: ToolFinder
    facts: FactGatherer
    in_force: PolicyInForce
    overlay: Overlay

    def has_changed(self, version: str) -> bool:
        """Whether another policy is in force than the one of this version."""
        return self.in_force.policy.version != version

    def judge(self, call: Operation, gathered: Gathered) -> Judged:
        """The judgement of a call by its facts."""

        def tool() -> NamedTool:
            names = self.tools.names(call.server, call.tool)
            return NamedTool(call.server, call.tool, names)

        judged = judge(gathered, self.in_force.policy, self.overlay, tool)
        return _unasked(judged) if call.method == "completion/complete" else judged

    def shadow(self, call: Operation, gathered: Gathered, judged: Judged) -> Json:
        """What the candidate would decide otherwise, for the record; None: nothing."""
        candidate = self.in_force.candidate
        if candidate is None:
            return None
        names = self.tools.names(call.server, call.tool)
        named = NamedTool(call.server, call.tool, names)
        other = judge(gathered, candidate, self.overlay, lambda: named).decision
        if effect_of(other) == effect_of(judged.decision):
            return None
        rule = other.ground.rule
        return {"policy": candidate.version, "decision": effect_of(other), "rule": rule}

    async def examine(self, call: Operation) -> tuple[Gathered, Judged]:
        """The current facts of a call, and the judgement. Nothing is recorded."""
        gathered = await self.facts.gather(call)
        return gathered, self.judge(call, gathered)
