"""The policy's decision on one call.

Structural invariants first, in order; then the compiled rules for each argument role that the
workspace did not settle; deny overrides escalate overrides allow; nothing matched is denied. Layers
that only restrict are asked last.
"""

from ironcurtain_proxy.decision.combining import combine
from ironcurtain_proxy.decision.floors import narrowed
from ironcurtain_proxy.decision.invariants import INVARIANTS, contained_roles, protected_repository
from ironcurtain_proxy.decision.matching import resource_roles
from ironcurtain_proxy.decision.questions import decide_question
from ironcurtain_proxy.decision.rules import decide_role, decide_unannotated, decide_without_roles
from ironcurtain_proxy.model.decision import Allow, Decision, Ground
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import AccessRequest

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
