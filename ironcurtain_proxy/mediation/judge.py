"""The judgement of a call before anyone is asked: policy and overlay joined.

Mediator and `explain` share it, so that an explanation always shows what `serve` does.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.approval.judging import (
    NamedTool,
    Overlay,
    by_policy_alone,
    with_questions,
    with_targets,
)
from ironcurtain_proxy.decision.authorizer import authorize, prior_consent_of, quorums_of, unasked
from ironcurtain_proxy.decision.rules import gravest_first, with_omitted
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.decision import Allow, Deny, Escalate, Ground, effect_of
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.operation import TOOL_CALL, Method, Operation
from ironcurtain_proxy.model.policy import Policy, PolicyInForce
from ironcurtain_proxy.model.request import Facts, Gathered, Unresolvable, lasting
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import FactGatherer, ToolFinder

BLOCKED: Final = "sandbox-host"
"""The rule of a question about an allowed call that the sandbox kept from a host."""


class Attempts(Struct):
    """The hosts that calls of one session were kept from, and those opened for allowed calls."""

    tried: dict[str, str] = field(default_factory=dict)
    """The host that a call tried to reach, or a word for it, by the call's fingerprint."""
    opened: dict[str, dict[str, None]] = field(default_factory=dict)
    """By server, the hosts that a person has opened to the calls that the policy allows."""

    def asked_host(self, server: str, fingerprint: str) -> str:
        """Return the host that an allowed call is to be asked about, or empty if there is none."""
        host = self.tried.get(fingerprint, "")
        return "" if host in self.opened.get(server, ()) else host

    def open(self, server: str, host: str) -> None:
        """Let the calls of a server that the policy allows reach a host from now on."""
        self.opened.setdefault(server, {})[host] = None


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
    if isinstance(gathered, Facts):
        if gathered.secrets or gathered.client_asks or gathered.acts_by_itself:
            judged = with_questions(judged, gathered)
        if overlay.ask_when_named_by:
            judged = with_targets(judged, gathered.request, overlay.ask_when_named_by)
        if policy.has_quorums:
            judged = replace(judged, quorums=quorums_of(gathered.request, policy))
    if method != "completion/complete" or not isinstance(judged.decision, Escalate):
        return judged
    return Judgement(decision=unasked(judged.decision))


def _judged(
    gathered: Gathered, policy: Policy, overlay: Overlay, tool: Callable[[], NamedTool]
) -> Judgement:
    if isinstance(gathered, Unresolvable):
        return Judgement(decision=Deny(gathered.ground))
    request = gathered.request
    kernel = with_omitted(gravest_first(authorize(request, policy)), request)
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
    attempts: Attempts = msgspec.field(default_factory=Attempts)

    def has_changed(self, version: str) -> bool:
        """Return whether another policy is in force than the one of this version."""
        return self.in_force.policy.version != version

    def judge(self, call: Operation, gathered: Gathered) -> Judgement:
        """Return the judgement of a call by its facts."""

        def tool() -> NamedTool:
            names = self.tools.names(call.server, call.tool)
            return NamedTool(call.server, call.tool, names)

        judged = judge(gathered, self.in_force.policy, self.overlay, tool, call.method)
        if not self.attempts.tried or not isinstance(gathered, Facts):
            return judged
        return self._with_blocked_host(call, gathered, judged)

    def _with_blocked_host(self, call: Operation, facts: Facts, judged: Judgement) -> Judgement:
        """Return the judgement of a call that the sandbox kept from a host when it was made before.

        What the policy allows and the sandbox forbids would fail again and again unasked.
        """
        if not isinstance(judged.decision, Allow) or call.method != TOOL_CALL:
            return judged
        fingerprint = self.facts.fingerprint(call, facts.arguments)
        host = self.attempts.asked_host(call.server, fingerprint)
        if not host:
            return judged
        ground = Ground(
            BLOCKED,
            f"The server's sandbox keeps this call from {host}. An approval opens {host} to all "
            "calls of this server that the policy allows, until the session ends",
        )
        reason = OriginReason(origin="policy", ground=ground)
        return replace(judged, decision=Escalate(ground), reasons=(*judged.reasons, reason))

    def shadow(self, call: Operation, gathered: Gathered, judged: Judgement) -> Json:
        """Return the different decision of the candidate policy, for the record.

        It is None if there is none.
        """
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
        """Return the current facts of a call, and the judgement. Nothing is recorded."""
        gathered = await self.facts.gather(call)
        return gathered, self.judge(call, gathered)

    async def is_still(self, call: Operation, gathered: Gathered, judged: Judgement) -> bool:
        """Return whether the answer to a call rests on what is still so.

        What the call names must be the same, and the policy must answer the same by the facts of
        this moment. A fact that changed by itself and that no rule asked for changes nothing.
        """
        now, again = await self.examine(call)
        if isinstance(now, Facts) and isinstance(gathered, Facts):
            return again == judged and lasting(now) == lasting(gathered)
        return again == judged and now == gathered
