"""Rules that keep calls for reviewers although containment could undo them."""

from ironcurtain_proxy.decision.floors import restrictions
from ironcurtain_proxy.decision.matching import resource_roles
from ironcurtain_proxy.decision.rules import answering_rules
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest


def rule_for_reviewers(request: AccessRequest, policy: Policy) -> Rule | None:
    """The first rule that decides on the call and says `contained: false`; None: there is none.

    Every role of the call counts, also one that the workspace settles, and every layer.
    """
    for role in resource_roles(request) or (None,):
        for rule in answering_rules(request, policy, role):
            if not rule.contained:
                return rule
    kept = (rule for _, rule in restrictions(request, policy) if not rule.contained)
    return next(kept, None)
