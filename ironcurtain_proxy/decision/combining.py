"""Combining several decisions into one.

XACML 3.0, appendix C.2 (deny-overrides), with escalate between the two.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import GRAVEST_FIRST, ArgumentRole
from ironcurtain_proxy.model.decision import (
    SEVERITY,
    Allow,
    Decision,
    Deny,
    Effect,
    Escalate,
    Ground,
    effect_of,
)
from ironcurtain_proxy.model.policy import Rule

DEFAULT_DENY = Deny(Ground("default-deny", "No matching policy rule -- denied by default"))
"""The decision where no rule matched."""


def decision_of(rule: Rule) -> Decision:
    """The decision of a rule that holds."""
    return answer(rule.effect, Ground(rule.name, rule.reason))


def answer(effect: Effect, ground: Ground) -> Decision:
    """A decision from its effect and ground."""
    match effect:
        case "allow":
            return Allow(ground)
        case "escalate":
            return Escalate(ground)
        case "deny":
            return Deny(ground)
        case _:
            assert_never(effect)


def is_severer(one: Decision, other: Decision) -> bool:
    """Whether one decision is more severe than the other."""
    return SEVERITY[effect_of(one)] > SEVERITY[effect_of(other)]


def combine(answers: Iterable[tuple[ArgumentRole, Decision]]) -> Decision:
    """The most severe decision, the first of equals; an escalation names all escalated roles.

    An empty sequence is denied: vacuous truth must not allow a call whose roles were never
    examined.
    """
    worst: Decision | None = None
    escalated: list[tuple[ArgumentRole, Ground]] = []
    for role, decision in answers:
        if isinstance(decision, Deny):
            return decision
        if isinstance(decision, Escalate):
            escalated.append((role, decision.ground))
        if worst is None or is_severer(decision, worst):
            worst = decision
    if worst is None:
        return DEFAULT_DENY
    if isinstance(worst, Escalate):
        roles, grounds = zip(*escalated, strict=True)
        return Escalate(worst.ground, roles, grounds)
    return worst


def gravest_first(decision: Decision) -> Decision:
    """An escalation with its gravest role's rule as ground, and all reasons.

    Roles come in file order. A person who reads "reading" first, and approves, could approve a
    deletion unseen. Other decisions are returned unchanged.
    """
    if not isinstance(decision, Escalate) or not decision.by_role:
        return decision
    asked = sorted(
        zip(decision.roles, decision.by_role, strict=True),
        key=lambda one: GRAVEST_FIRST.index(one[0]),
    )
    reasons = dict.fromkeys([ground.reason.removesuffix(".") for _, ground in asked])
    gravest = asked[0][1]
    reason = gravest.reason if len(reasons) == 1 else "; ".join(reasons)
    return replace(decision, ground=Ground(gravest.rule, reason))
