"""Layers joined again, as naively as it can be said."""

from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.decision import Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest
from tests.reference.authorizer import (
    asked_by_name,
    conditions_hold,
    inside,
    reference_authorize,
    says,
    settled_by_workspace,
    single_paths_hold,
    speaks_of,
    unscoped_rule_matches,
    values_with,
)


def reference_layers(request: AccessRequest, policy: Policy) -> Decision:
    """May the session use this tool on these resources, by all layers?"""
    return narrowed_by_layers(request, policy, reference_authorize(request, policy))


def narrowed_by_layers(request: AccessRequest, policy: Policy, decision: Decision) -> Decision:
    """Every layer is asked for itself about every role and value; the worst answer is taken."""
    if isinstance(decision, Deny) or not policy.floors:
        return decision
    found = []
    for floor in policy.floors:
        alone = replace(policy, rules=floor.rules, floors=())
        for role, rule in layer_rules(request, alone):
            if rule.effect == "deny" or (rule.effect == "escalate" and floor.asks):
                found.append((role, says(rule)))
    for _, answer in found:
        if isinstance(answer, Deny):
            return answer
    if not found:
        return decision
    asked: dict[ArgumentRole, Ground] = {}
    if isinstance(decision, Escalate):
        asked = {
            role: decision.by_role[place] if decision.by_role else decision.ground
            for place, role in enumerate(decision.roles)
        }
    for asked_role, answer in found:
        if asked_role is not None and asked_role not in asked:
            asked[asked_role] = answer.ground
    first = decision.ground if isinstance(decision, Escalate) else found[0][1].ground
    return Escalate(first, tuple(asked.keys()), tuple(asked.values()))


def layer_rules(request: AccessRequest, policy: Policy) -> list[tuple[ArgumentRole | None, Rule]]:
    """For each role, the rules that one of its values meets first, in file order."""
    roles: list[ArgumentRole] = []
    for fact in request.arguments:
        for role in fact.roles:
            if ROLE_TRAITS[role].category != "opaque" and role not in roles:
                roles.append(role)
    if not roles:
        first = [r for r in policy.rules if unscoped_rule_matches(r, request)][:1]
        return [(None, rule) for rule in first]
    found: list[tuple[ArgumentRole | None, Rule]] = []
    for role in roles:
        if settled_by_workspace(role, request, policy):
            continue
        values = values_with({role}, request)
        met = []
        for place, rule in enumerate(policy.rules):
            if speaks_of(rule, role) and conditions_hold(rule, request, role):
                met.append((place, rule))
        if not values:
            for _, rule in met:
                root = rule.paths is not None and str(rule.paths.within) == "/"
                if rule.names is None and (rule.paths is None or (root and rule.effect != "allow")):
                    found.append((role, rule))
                    break
            continue
        firsts = set()
        for value in values:
            if (
                policy.workspace is not None
                and request.server == "filesystem"
                and ROLE_TRAITS[role].contained
                and inside(value, policy.workspace)
                and not asked_by_name(value, role, request, policy)
            ):
                continue
            firsts.update([p for p, rule in met if single_paths_hold(rule, value)][:1])
        found += [(role, policy.rules[place]) for place in sorted(firsts)]
    return found
