"""The one question: may this be done? Pure: no I/O, no clock, no log.

Structural invariants first, in order; then the compiled rules for each argument role that the
workspace did not settle; deny overrides escalate overrides allow; nothing matched is denied.
"""

from ironcurtain_proxy.decision.combining import combine
from ironcurtain_proxy.decision.invariants import INVARIANTS, contained_roles
from ironcurtain_proxy.decision.rules import decide_role, decide_without_roles
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.decision import Allow, Decision, Ground
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import AccessRequest

CONTAINED = Allow(
    Ground("structural-sandbox-allow", "All path roles resolved by sandbox containment")
)
"""The answer where every role of a call was settled by the workspace."""


def authorize(request: AccessRequest, policy: Policy) -> Decision:
    """May the session use this tool on these resources?"""
    for invariant in INVARIANTS:
        decision = invariant(request, policy)
        if decision is not None:
            return decision
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


def resource_roles(request: AccessRequest) -> list[ArgumentRole]:
    """Every resource role of the tool once, in annotation order.

    Whether the call has a value for it or not: an argument that was left out may still be filled
    in by the server.
    """
    roles: dict[ArgumentRole, None] = {}
    for fact in request.arguments:
        for role in fact.roles:
            if ROLE_TRAITS[role].is_resource:
                roles[role] = None
    return list(roles)
