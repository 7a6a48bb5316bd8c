"""Rules that keep calls for reviewers although containment could undo them."""

from dataclasses import replace
from typing import Final

from ironcurtain_proxy.decision.authorizer import restrictions
from ironcurtain_proxy.decision.rules import answering_rules, decide_role, resource_roles
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Allow
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest

_READ: Final[ArgumentRole] = "read-path"


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


def is_asked_to_read(request: AccessRequest, policy: Policy) -> bool:
    """Whether a rule keeps the reading of a call for reviewers.

    A rule with `contained_reads` asks about its tool as a whole: it does not, where all other rules
    would allow the same paths to be read.
    """
    if not any(rule.contained_reads for rule in answering_rules(request, policy, _READ)):
        return True
    others = tuple([rule for rule in policy.rules if not rule.contained_reads])
    if not isinstance(decide_role(request, replace(policy, rules=others), _READ), Allow):
        return True
    return any(role == _READ for role, _ in restrictions(request, policy))
