"""Earlier consent of a person to a call: by the workspace, or by a rule.

It changes no decision. Approval modes ask less where a person has already approved exactly this.
"""

from ironcurtain_proxy.decision.invariants import INVARIANTS, contained_roles
from ironcurtain_proxy.decision.rules import answering_rules, resource_roles
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Allow, Decision, PriorConsent
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest


def prior_consent_of(request: AccessRequest, policy: Policy, decision: Decision) -> PriorConsent:
    """The earlier consent behind a decision.

    Args:
        request: what was asked.
        policy: what it was decided by.
        decision: what `authorize` said of the two.
    """
    contained = contained_roles(request, policy)
    if not isinstance(decision, Allow) or _is_settled_early(request, policy):
        return PriorConsent(contained=contained)
    answers: dict[ArgumentRole | None, tuple[Rule, ...]] = {
        role: answering_rules(request, policy, role)
        for role in (resource_roles(request) or (None,))
        if role not in contained
    }
    rules = [rule for found in answers.values() for rule in found]
    return PriorConsent(
        contained=contained,
        # INVARIANT: no rule at all is not a rule that names the tool.
        names_tool=bool(rules) and all(rule.tools is not None for rule in rules),
        names_roles=frozenset(
            role
            for role, found in answers.items()
            if role is not None and found and all(_is_meant(rule, role) for rule in found)
        ),
    )


def goes_by_name(request: AccessRequest, policy: Policy) -> bool:
    """Whether a rule that asks or denies describes the name of a file of this call, such as `.env`.

    An approval of such a call speaks of this file. One that was given for another file of the
    directory does not speak of it.
    """
    layers = (policy.rules, *[floor.rules for floor in policy.floors])
    conditions = [
        rule.names
        for rules in layers
        for rule in rules
        if rule.names is not None and rule.effect != "allow"
    ]
    return any(
        condition.covers(value)
        for fact in request.arguments
        for condition in conditions
        if not condition.roles.isdisjoint(fact.roles)
        for value in fact.values
    )


def _is_settled_early(request: AccessRequest, policy: Policy) -> bool:
    """Whether an invariant decided, so that no rule was evaluated."""
    return any(invariant(request, policy) is not None for invariant in INVARIANTS)


def _is_meant(rule: Rule, role: ArgumentRole) -> bool:
    """Return whether the rule names this tool or this role explicitly."""
    named = (rule.roles or (), *[one.named for one in rule.conditions])
    return rule.tools is not None or any(role in roles for roles in named)
