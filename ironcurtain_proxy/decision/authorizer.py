"""The policy's decision on one call.

Structural invariants first, in order; then the compiled rules for each argument role that the
workspace did not settle; deny overrides escalate overrides allow; nothing matched is denied. Layers
that only restrict are asked last.
"""

from collections.abc import Iterator

from ironcurtain_proxy.decision.invariants import (
    INVARIANTS,
    contained_roles,
    decide_question,
    protected_repository,
)
from ironcurtain_proxy.decision.rules import (
    answering_rules,
    combine,
    decide_role,
    decide_unannotated,
    decide_without_roles,
    decision_of,
    resource_roles,
)
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.policy import Floor, Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest


def unasked(decision: Decision) -> Decision:
    """The decision on a completion, from the one on what it completes."""
    if not isinstance(decision, Escalate):
        return decision
    asked = decision.ground.reason
    reason = (
        f"Nobody is asked about completions, and what it completes would be asked about: {asked}"
    )
    return Deny(Ground("completion-of-asked", reason))


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


CONTAINED = Allow(
    Ground("structural-sandbox-allow", "All path roles resolved by sandbox containment")
)
"""The decision where the workspace settled every role of a call."""


def authorize(request: AccessRequest, policy: Policy) -> Decision:
    """Decide on one operation and the resources that it names."""
    decision = _decided(request, policy)
    return narrowed(request, policy, decision) if policy.floors else decision


def _decided(request: AccessRequest, policy: Policy) -> Decision:
    for invariant in INVARIANTS:
        decision = invariant(request, policy)
        if decision is not None:
            return decision
    decision = _by_rules(request, policy)
    if isinstance(decision, Allow):
        return protected_repository(request, policy) or decision
    return decision


def _by_rules(request: AccessRequest, policy: Policy) -> Decision:
    if request.question is not None:
        return decide_question(request, request.question, policy)
    if not request.annotated:
        return decide_unannotated(request, policy)
    roles = resource_roles(request)
    if not roles:
        return decide_without_roles(request, policy)
    settled = contained_roles(request, policy)
    open_roles = [role for role in roles if role not in settled]
    if not open_roles:
        return CONTAINED
    if len(open_roles) == 1:
        return combine([(open_roles[0], decide_role(request, policy, open_roles[0]))])
    return combine((role, decide_role(request, policy, role)) for role in open_roles)
