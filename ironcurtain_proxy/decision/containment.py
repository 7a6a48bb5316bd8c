"""Rules that keep calls for reviewers although containment could undo them.

Others say how many persons must sign an approval.
"""

from dataclasses import replace
from typing import Final

from ironcurtain_proxy.decision.authorizer import restrictions
from ironcurtain_proxy.decision.rules import answering_rules, decide_role, resource_roles
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Allow
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.signing import Quorum

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


def quorums_of(request: AccessRequest, policy: Policy) -> tuple[Quorum, ...]:
    """Return what the rules that ask about a call demand of its approval, of every layer.

    A call that nobody has described is decided without rules. A rule of its tool counts all the
    same: otherwise a server would lose it by adding an argument.
    """
    if not policy.has_quorums:
        return ()
    roles: tuple[ArgumentRole | None, ...] = tuple(resource_roles(request)) or (None,)
    if not request.annotated and None not in roles:
        roles = (*roles, None)
    asking = [rule for role in roles for rule in answering_rules(request, policy, role)]
    asking += [rule for _, rule in restrictions(request, policy)]
    found = [one.quorum for one in asking if one.effect == "escalate" and one.quorum is not None]
    return tuple(dict.fromkeys(found))


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
