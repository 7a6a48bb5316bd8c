"""Layers that only restrict: what they deny or ask about holds, whatever other layers allow.

A floor is evaluated by itself, with the same parts as the rules: for each role and value the first
rule that holds. The more severe of the two answers counts. An allow of a floor has no effect, so
that a project can never widen what its user allows. Where both ask, the ground of the rules stays:
a project's words never replace the operator's.
"""

from collections.abc import Iterator

from ironcurtain_proxy.decision.combining import decision_of
from ironcurtain_proxy.decision.invariants import contained_roles
from ironcurtain_proxy.decision.matching import resource_roles
from ironcurtain_proxy.decision.rules import answering_rules
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.policy import Floor, Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest


def narrowed(request: AccessRequest, policy: Policy, decision: Decision) -> Decision:
    """The decision after every floor was asked."""
    if isinstance(decision, Deny):
        return decision
    found = list(restrictions(request, policy))
    for _, rule in found:
        if rule.effect == "deny":
            return decision_of(rule)
    asking = [(role, Ground(rule.name, rule.reason)) for role, rule in found]
    return _asked(decision, asking) if asking else decision


def restrictions(
    request: AccessRequest, policy: Policy
) -> Iterator[tuple[ArgumentRole | None, Rule]]:
    """Each rule of a floor that restricts the call, with the role that it was asked about."""
    for floor in policy.floors:
        settled = contained_roles(request, policy, floor.book)
        for role in resource_roles(request) or (None,):
            if role not in settled:
                for rule in answering_rules(request, policy, role, floor.book):
                    if _holds(rule, floor):
                        yield role, rule


def _holds(rule: Rule, floor: Floor) -> bool:
    return rule.effect == "deny" or (floor.asks and rule.effect == "escalate")


def _asked(
    decision: Allow | Escalate, asking: list[tuple[ArgumentRole | None, Ground]]
) -> Escalate:
    """An escalation that names what the rules and the floors ask about."""
    by_role: dict[ArgumentRole, Ground] = {}
    ground = asking[0][1]
    if isinstance(decision, Escalate):
        ground = decision.ground
        grounds = decision.by_role or (ground,) * len(decision.roles)
        by_role.update(zip(decision.roles, grounds, strict=True))
    for role, reason in asking:
        if role is not None:
            by_role.setdefault(role, reason)
    return Escalate(ground, tuple(by_role), tuple(by_role.values()))
