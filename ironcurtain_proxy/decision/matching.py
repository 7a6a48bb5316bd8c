"""Whether the conditions of a rule hold for a request.

The conditions judge themselves (`model.conditions`); this module says in which way they are asked.
"""

from ironcurtain_proxy.model.annotation import RESOURCE_ROLES, ArgumentRole
from ironcurtain_proxy.model.conditions import values_of
from ironcurtain_proxy.model.policy import Rule, RuleBook
from ironcurtain_proxy.model.request import AccessRequest, Value


def resource_roles(request: AccessRequest) -> list[ArgumentRole]:
    """Return every resource role of the tool once, in annotation order.

    Roles without a value in this call are included: the server may fill in a missing argument.
    """
    roles: dict[ArgumentRole, None] = {}
    for fact in request.arguments:
        for role in fact.roles:
            if role in RESOURCE_ROLES:
                roles[role] = None
    return list(roles)


def covers(rule: Rule, value: Value) -> bool:
    """Return whether a rule's conditions on single values hold for a value."""
    return all(one.covers(value) for one in rule.of_value)


def holds_unseen(rule: Rule, request: AccessRequest, role: ArgumentRole | None) -> bool:
    """Return whether a rule's conditions on single values hold where the role has no value."""
    return all(one.holds_unseen(request, role) for one in rule.of_value)


def applies_to_call(rule: Rule, request: AccessRequest, role: ArgumentRole | None) -> bool:
    """Return whether all conditions hold except those on single values.

    The rule comes from `RuleBook.about`, which already selected by server, tool and role.
    """
    if role is None and rule.roles is not None and not _has_any_role(request, rule.roles):
        return False
    return all(one.holds(request, role) for one in rule.of_call)


def asked_everywhere(
    request: AccessRequest, book: RuleBook, role: ArgumentRole
) -> frozenset[Value]:
    """Return the values of a role that a rule restricts by name or everywhere.

    No directory settles these.
    """
    rules = book.restricting(request.server, request.tool, role, request.method)
    return frozenset(
        [
            value
            for rule in rules
            if applies_to_call(rule, request, role)
            for value in values_of(request, (role,))
            if covers(rule, value)
        ]
    )


def restricts_everything(rule: Rule) -> bool:
    """Return whether a rule that does not allow covers the root directory.

    The server fills in a path that the call omits, and any such path lies within `/`. This holds
    for restricting rules only: no unseen path is ever allowed.
    """
    return (
        rule.effect != "allow"
        and rule.names is None
        and rule.paths is not None
        and not rule.paths.within.parts
    )


def _has_any_role(request: AccessRequest, roles: frozenset[ArgumentRole]) -> bool:
    return any(not roles.isdisjoint(fact.roles) for fact in request.arguments)
