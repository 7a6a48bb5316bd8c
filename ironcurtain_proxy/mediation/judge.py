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
from ironcurtain_proxy.model.call import ToolCall
from ironcurtain_proxy.model.decision import Deny
from ironcurtain_proxy.model.judgement import Judged
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges the calls of one session."""

    tools: ToolFinder
    facts: FactGatherer
    policy: Policy
    overlay: Overlay

    def judge(self, call: ToolCall, gathered: Gathered) -> Judged:
        """The judgement of a call by its facts."""

        def tool() -> NamedTool:
            names = self.tools.names(call.server, call.tool)
            return NamedTool(call.server, call.tool, names)

        return judge(gathered, self.policy, self.overlay, tool)

    async def examine(self, call: ToolCall) -> tuple[Gathered, Judged]:
        """The current facts of a call, and the judgement. Nothing is recorded."""
        gathered = await self.facts.gather(call)
        return gathered, self.judge(call, gathered)
