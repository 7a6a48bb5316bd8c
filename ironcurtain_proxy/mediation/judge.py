"""The judgement of a call before anyone is asked: policy and overlay joined.

Mediator and `explain` share it, so that an explanation always shows what `serve` does.
"""

from collections.abc import Callable

from msgspec import Struct

from ironcurtain_proxy.approval.judging import NamedTool, Overlay, by_policy_alone
from ironcurtain_proxy.approval.secrets import with_secrets
from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.decision.combining import gravest_first
from ironcurtain_proxy.decision.completions import unasked
from ironcurtain_proxy.decision.prior_consent import prior_consent_of
from ironcurtain_proxy.mediation.in_force import PolicyInForce
from ironcurtain_proxy.model.decision import Deny, Escalate, effect_of
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.judgement import Judgement
from ironcurtain_proxy.model.operation import TOOL_CALL, Method, Operation
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import Facts, Gathered, Unresolvable
from ironcurtain_proxy.ports import FactGatherer, ToolFinder


def judge(
    gathered: Gathered,
    policy: Policy,
    overlay: Overlay,
    tool: Callable[[], NamedTool],
    method: Method = TOOL_CALL,
) -> Judgement:
    """Join the policy's decision with the operator's other reasons to ask.

    Args:
        gathered: the facts of the call, or why there are none.
        policy: decides.
        overlay: may only make the decision more severe.
        tool: finds out what is called, by all its names; asked only if it matters.
        method: of the operation.
    """
    judged = _judged(gathered, policy, overlay, tool)
    if isinstance(gathered, Facts) and gathered.secrets:
        judged = with_secrets(judged, gathered)
    if method != "completion/complete" or not isinstance(judged.decision, Escalate):
        return judged
    return Judgement(decision=unasked(judged.decision))


def _judged(
    gathered: Gathered, policy: Policy, overlay: Overlay, tool: Callable[[], NamedTool]
) -> Judgement:
    if isinstance(gathered, Unresolvable):
        return Judgement(decision=Deny(gathered.ground))
    request = gathered.request
    kernel = gravest_first(authorize(request, policy))
    if overlay.rules is None:
        return by_policy_alone(kernel)
    return overlay.judge(
        kernel, gathered, tool(), lambda: prior_consent_of(request, policy, kernel)
    )


class Judge(Struct, frozen=True, kw_only=True):
    """Judges the calls of one session."""

    tools: ToolFinder
    facts: FactGatherer
    in_force: PolicyInForce
    overlay: Overlay

    def has_changed(self, version: str) -> bool:
        """Whether another policy is in force than the one of this version."""
        return self.in_force.policy.version != version

    def judge(self, call: Operation, gathered: Gathered) -> Judgement:
        """The judgement of a call by its facts."""

        def tool() -> NamedTool:
            names = self.tools.names(call.server, call.tool)
            return NamedTool(call.server, call.tool, names)

        return judge(gathered, self.in_force.policy, self.overlay, tool, call.method)

    def shadow(self, call: Operation, gathered: Gathered, judged: Judgement) -> Json:
        """The different decision of the candidate policy, for the record; None: there is none."""
        candidate = self.in_force.candidate
        if candidate is None:
            return None
        names = self.tools.names(call.server, call.tool)
        named = NamedTool(call.server, call.tool, names)
        other = judge(gathered, candidate, self.overlay, lambda: named, call.method).decision
        if effect_of(other) == effect_of(judged.decision):
            return None
        rule = other.ground.rule
        return {"policy": candidate.version, "decision": effect_of(other), "rule": rule}

    async def examine(self, call: Operation) -> tuple[Gathered, Judgement]:
        """The current facts of a call, and the judgement. Nothing is recorded."""
        gathered = await self.facts.gather(call)
        return gathered, self.judge(call, gathered)
