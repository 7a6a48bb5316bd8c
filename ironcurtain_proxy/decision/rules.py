"""The decision of the compiled rules on each argument role.

Each role is evaluated on its own, and within a role each value: a move from Downloads to
Documents is allowed by one rule on reading and another on writing. A value that no rule covers
is denied.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import (
    GRAVEST_FIRST,
    RESOURCE_ROLES,
    ROLE_TRAITS,
    ArgumentRole,
)
from ironcurtain_proxy.model.conditions import leads_only_to, values_of
from ironcurtain_proxy.model.decision import (
    SEVERITY,
    UNKNOWN_TOOL,
    Allow,
    Decision,
    Deny,
    Effect,
    Escalate,
    Ground,
)
from ironcurtain_proxy.model.policy import Policy, Rule, RuleBook
from ironcurtain_proxy.model.request import AccessRequest, PathValue, UrlValue, Value
from ironcurtain_proxy.model.values import RealPath

DEFAULT_DENY = Deny(Ground("default-deny", "No matching policy rule -- denied by default"))
"""The decision where no rule matched."""


_DECISIONS: Final[Mapping[Effect, type[Allow | Escalate | Deny]]] = MappingProxyType(
    {one.effect: one for one in (Allow, Escalate, Deny)}
)


def decision_of(rule: Rule) -> Decision:
    """Return the decision of a rule that holds."""
    return _DECISIONS[rule.effect](Ground(rule.name, rule.reason))


def is_severer(one: Decision, other: Decision) -> bool:
    """Return whether one decision is more severe than the other."""
    return SEVERITY[one.effect] > SEVERITY[other.effect]


def combine(answers: Iterable[tuple[ArgumentRole, Decision]]) -> Decision:
    """Return the most severe decision, the first of equals.

    An escalation names all escalated roles.

    An empty sequence is denied: vacuous truth must not allow a call whose roles were never
    examined.
    """
    worst: Decision | None = None
    escalated: list[tuple[ArgumentRole, Ground]] = []
    for role, decision in answers:
        if isinstance(decision, Deny):
            return decision
        if isinstance(decision, Escalate):
            escalated.append((role, decision.ground))
        if worst is None or is_severer(decision, worst):
            worst = decision
    if worst is None:
        return DEFAULT_DENY
    if isinstance(worst, Escalate):
        roles, grounds = zip(*escalated, strict=True)
        return Escalate(worst.ground, roles, grounds)
    return worst


def gravest_first(decision: Decision) -> Decision:
    """Return an escalation with its gravest role's rule as ground, and all reasons.

    Roles come in file order. A person who reads "reading" first, and approves, could approve a
    deletion unseen. Other decisions are returned unchanged.
    """
    if not isinstance(decision, Escalate) or not decision.by_role:
        return decision
    asked = sorted(
        zip(decision.roles, decision.by_role, strict=True),
        key=lambda one: GRAVEST_FIRST.index(one[0]),
    )
    reasons = dict.fromkeys([ground.reason.removesuffix(".") for _, ground in asked])
    gravest = asked[0][1]
    reason = gravest.reason if len(reasons) == 1 else "; ".join(reasons)
    return replace(decision, ground=Ground(gravest.rule, reason))


def with_omitted(decision: Decision, request: AccessRequest) -> Decision:
    """Return a decision whose reason says which argument of its gravest role a call leaves out.

    "Outside the workspace" would be untrue of a call that names no path: nobody knows where it is.
    """
    if not isinstance(decision, Escalate) or not decision.roles:
        return decision
    role = min(decision.roles, key=GRAVEST_FIRST.index)
    facts = [fact for fact in request.arguments if role in fact.roles]
    # An option that nobody has looked at, such as `headers`, is no place.
    if role == "unclear" or not facts or any(fact.values for fact in facts):
        return decision
    ground = decision.ground
    reason = f'The call leaves out "{facts[0].name[:60]}", so its server chooses. {ground.reason}'
    return replace(decision, ground=Ground(ground.rule, reason))


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
    for one in rule.of_value:  # noqa: SIM110  a generator would be a call more
        if not one.covers(value):
            return False
    return True


def holds_unseen(rule: Rule, request: AccessRequest, role: ArgumentRole | None) -> bool:
    """Return whether a rule's conditions on single values hold where the role has no value."""
    return not rule.of_value or all(one.holds_unseen(request, role) for one in rule.of_value)


def applies_to_call(rule: Rule, request: AccessRequest, role: ArgumentRole | None) -> bool:
    """Return whether all conditions hold except those on single values.

    The rule comes from `RuleBook.about`, which already selected by server, tool and role.
    """
    if role is None and rule.roles is not None and not _has_any_role(request, rule.roles):
        return False
    for one in rule.of_call:  # noqa: SIM110  a generator would be a call more
        if not one.holds(request, role):
            return False
    return True


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


def decide_role(request: AccessRequest, policy: Policy, role: ArgumentRole) -> Decision:
    """Return the decision on one resource role of the call."""
    values = _values(request, role)
    rules = policy.book.about(request.server, request.tool, role, request.method)
    if not values:
        return _answer_of(_first_that_holds(rules, request, role))
    is_elsewhere = request.server != "filesystem" or _own_ground(request, policy, role) is None
    if len(values) == 1 and is_elsewhere:
        for rule in rules:
            if applies_to_call(rule, request, role) and covers(rule, values[0]):
                return decision_of(rule)
        return DEFAULT_DENY
    remaining = set(_open(request, policy, policy.book, role, values))
    workspace = policy.workspace if len(remaining) < len(set(values)) else None
    return _discharge(rules, request, role, remaining, workspace)


def decide_without_roles(request: AccessRequest, policy: Policy) -> Decision:
    """Return the decision on a tool that names no resource: the first rule that holds."""
    rules = policy.book.about(request.server, request.tool, None, request.method)
    return _answer_of(_first_that_holds(rules, request, None))


def decide_unannotated(request: AccessRequest, policy: Policy) -> Decision:
    """Return the decision on a tool without an annotation, where the operator wants to be asked.

    A rule can deny the call by what its arguments look like. No rule allows it.
    """
    found = denying_rule(request, policy)
    if found is not None:
        return decision_of(found[1])
    return Escalate(Ground(UNKNOWN_TOOL, _undescribed(request)), tuple(resource_roles(request)))


def _undescribed(request: AccessRequest) -> str:
    """Return what nobody has described: a tool, or arguments that a described tool was given."""
    tool = f"{request.server}/{request.tool}"
    if not request.undescribed:
        return f"Nobody has described the tool {tool}"
    first, *others = request.undescribed
    more = f" and {len(others)} more" if others else ""
    return f"Nobody has described the argument {first[:60]}{more} of the tool {tool}"


def denying_rule(request: AccessRequest, policy: Policy) -> tuple[ArgumentRole | None, Rule] | None:
    """Return the rule that denies a call of a tool without annotation, and its role.

    None: there is none. A role of None: it is about the call.
    """
    roles: tuple[ArgumentRole | None, ...] = (*resource_roles(request), None)
    for role in roles:
        for rule in policy.book.about(request.server, request.tool, role, request.method):
            if rule.effect == "deny" and _speaks_of(rule, request, role):
                return role, rule
    return None


def _speaks_of(rule: Rule, request: AccessRequest, role: ArgumentRole | None) -> bool:
    """Return whether a rule holds for the call, or for one value of the role."""
    if role is None:
        return applies_to_call(rule, request, None) and holds_unseen(rule, request, None)
    values = _values(request, role)
    if rule.domains is not None:
        # One value with these hosts is enough: texts of this role only look like addresses.
        hosts = rule.domains.allowed
        return any(isinstance(v, UrlValue) and leads_only_to(v, hosts) for v in values)
    return applies_to_call(rule, request, role) and any(covers(rule, value) for value in values)


def answering_rules(
    request: AccessRequest,
    policy: Policy,
    role: ArgumentRole | None,
    book: RuleBook | None = None,
) -> tuple[Rule, ...]:
    """Return the rules that the decision on a role was taken from, in file order.

    Args:
        request: what was asked.
        policy: what it was decided by.
        role: which role, or None if the tool names no resource.
        book: the rules of one layer; None: those of the policy.
    """
    book = book or policy.book
    rules = book.about(request.server, request.tool, role, request.method)
    values = [] if role is None else _values(request, role)
    if role is None or not values:
        first = _first_that_holds(rules, request, role)
        return () if first is None else (first,)
    remaining = set(_open(request, policy, book, role, values))
    return tuple(_responsible(rules, request, role, remaining))


def _values(request: AccessRequest, role: ArgumentRole) -> list[Value]:
    values: list[Value] = []
    for fact in request.arguments:
        if role in fact.roles:
            values += fact.values
    return values


def _first_that_holds(
    rules: tuple[Rule, ...], request: AccessRequest, role: ArgumentRole | None
) -> Rule | None:
    for rule in rules:
        if applies_to_call(rule, request, role) and (
            holds_unseen(rule, request, role) or (role is not None and restricts_everything(rule))
        ):
            return rule
    return None


def _answer_of(rule: Rule | None) -> Decision:
    return DEFAULT_DENY if rule is None else decision_of(rule)


def _open(
    request: AccessRequest,
    policy: Policy,
    book: RuleBook,
    role: ArgumentRole,
    values: list[Value],
) -> list[Value]:
    """Return the values that need a rule.

    Not settled by the workspace, or restricted everywhere.
    """
    workspace = _own_ground(request, policy, role)
    if workspace is None:
        return values
    named = asked_everywhere(request, book, role)
    return [value for value in values if value in named or not _is_own(value, workspace)]


def _own_ground(request: AccessRequest, policy: Policy, role: ArgumentRole) -> RealPath | None:
    """Return the ground of the workspace, where values inside it need no rule of their own.

    This holds for the filesystem server only, whose paths name all files that it touches.
    """
    if request.server == "filesystem" and ROLE_TRAITS[role].contained:
        return policy.workspace
    return None


def _discharge(
    rules: tuple[Rule, ...],
    request: AccessRequest,
    role: ArgumentRole,
    remaining: set[Value],
    workspace: RealPath | None,
) -> Decision:
    """Apply each rule in turn to the values that no earlier rule covered.

    Args:
        rules: those that speak of the role.
        request: the call.
        role: what is asked about.
        remaining: the values that need a rule.
        workspace: what settled others, or None if there were none.
    """
    placeholder = workspace is not None
    answer: Decision | None = None if workspace is None else _inside_workspace(workspace)
    for rule in _responsible(rules, request, role, remaining):
        decision = decision_of(rule)
        if answer is None or placeholder or is_severer(decision, answer):
            answer, placeholder = decision, False
    return DEFAULT_DENY if remaining or answer is None else answer


def _responsible(
    rules: tuple[Rule, ...], request: AccessRequest, role: ArgumentRole, remaining: set[Value]
) -> Iterator[Rule]:
    """Yield the rules that cover a value that none before covered. These values are removed."""
    for rule in rules:
        if not remaining:
            return
        left = _left_by(rule, request, role, remaining)
        if len(left) < len(remaining):
            # INVARIANT: a value leaves `remaining` only with an answer that is at least as severe.
            remaining.intersection_update(left)
            yield rule


def _left_by(
    rule: Rule, request: AccessRequest, role: ArgumentRole, remaining: set[Value]
) -> set[Value]:
    if not applies_to_call(rule, request, role):
        return remaining
    return {value for value in remaining if not covers(rule, value)}


def _is_own(value: Value, workspace: RealPath) -> bool:
    return isinstance(value, PathValue) and value.path.is_within(workspace)


def _inside_workspace(workspace: RealPath | None) -> Allow:
    return Allow(
        Ground("structural-sandbox-allow", f"Path(s) within the sandbox directory: {workspace}")
    )
