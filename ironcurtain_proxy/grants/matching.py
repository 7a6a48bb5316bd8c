"""Whether a grant covers a call.

A grant settles escalations of its own kind only, and is void when its tool's definition changes.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from ironcurtain_proxy.grants.patterns import HISTORY, EscalatedCall, places_of
from ironcurtain_proxy.model.annotation import IGNORES_CASE, ArgumentRole, same_scalar
from ironcurtain_proxy.model.grant import (
    CallPattern,
    CapabilityPattern,
    Constraint,
    ExactValue,
    FamilyPattern,
    Grant,
    GrantPattern,
    OnHost,
    Pattern,
    SameFlag,
    ToolPattern,
    WithinDirectory,
)
from ironcurtain_proxy.model.opening import NOTHING_OPENED, SandboxOpening
from ironcurtain_proxy.model.request import PathValue, SqlValue, TextValue, UrlValue, Value


def covers(grant: Grant, call: EscalatedCall, now: datetime) -> bool:
    """Whether a grant approves what the policy escalated.

    Args:
        grant: the grant.
        call: the escalated call.
        now: aware, UTC.
    """
    pattern = grant.pattern
    # INVARIANT: only a pattern approves what the policy escalated.
    if not isinstance(pattern, GrantPattern) or not is_of(pattern, call):
        return False
    # INVARIANT: the directory of a command does not determine its effect.
    if call.command is not None:
        return False
    if has_expired(grant, now):
        return False
    flags = {found.argument: found for found in pattern.constraints if isinstance(found, SameFlag)}
    # INVARIANT: a directory that was approved for ordinary files does not open its `.env`.
    constraints = tuple(
        found
        for found in pattern.constraints
        if not (call.goes_by_name and isinstance(found, WithinDirectory))
    )
    return _flags_hold(flags, call) and _roles_hold(constraints, flags, call)


def is_of(
    pattern: GrantPattern | ToolPattern | FamilyPattern | CallPattern, call: EscalatedCall
) -> bool:
    """Whether a pattern was approved for this tool in its current definition."""
    # INVARIANT: a tool whose definition has changed is asked about again.
    return (pattern.server, pattern.tool) == (call.server, call.tool) and (
        bool(call.definition) and pattern.definition == call.definition
    )


def has_expired(grant: Grant, now: datetime) -> bool:
    """Whether a grant's time is over; `now` is aware, UTC."""
    return grant.expires is not None and now >= grant.expires


def names_opening(grants: Sequence[Grant], call: EscalatedCall) -> bool:
    """Return whether grants that cover a call name all that it needs beyond its sandbox."""
    needed = call.opening
    if needed is None:
        return True
    named = [one for grant in grants for one in (grant.opened, _named(grant.pattern, call))]
    hosts = {host for one in named for host in one.hosts}
    paths = {path for one in named for path in one.paths}
    reads = {path for one in named for path in one.reads}
    return (
        hosts.issuperset(needed.hosts)
        and paths.issuperset(needed.paths)
        and reads.issuperset(needed.reads)
    )


def _named(pattern: Pattern, call: EscalatedCall) -> SandboxOpening:
    """Return the hosts and paths that the words of a pattern name in a call that it covers."""
    match pattern:
        case FamilyPattern(families=families):
            return SandboxOpening(hosts=tuple([host for one in families for host in one.hosts]))
        case GrantPattern(constraints=constraints):
            roles = {one.role for one in constraints if not isinstance(one, SameFlag)}
            values = [value for role in roles for value in call.values(role)]
            urls = [one for one in values if isinstance(one, UrlValue)]
            return SandboxOpening(
                hosts=tuple([domain.partition("/")[0] for one in urls for domain in one.domains]),
                paths=tuple([one.path for one in values if isinstance(one, PathValue)]),
            )
        case ToolPattern() | CapabilityPattern() | CallPattern():
            return NOTHING_OPENED
        case _:
            assert_never(pattern)


def _flags_hold(flags: dict[str, SameFlag], call: EscalatedCall) -> bool:
    # Both ways: no argument has changed, and none was added.
    return all(name in flags or call.arguments.get(name) is None for name in call.flags()) and all(
        same_scalar(call.arguments.get(name), flag.value) for name, flag in flags.items()
    )


def _roles_hold(
    constraints: tuple[Constraint, ...], flags: dict[str, SameFlag], call: EscalatedCall
) -> bool:
    by_role: dict[ArgumentRole, list[Constraint]] = {}
    for constraint in constraints:
        if not isinstance(constraint, SameFlag):
            by_role.setdefault(constraint.role, []).append(constraint)
    open_roles = call.open_roles
    if not by_role or not open_roles or not HISTORY.isdisjoint(open_roles):
        return False
    return all(_values_hold(call.values(role), found) for role, found in by_role.items()) and all(
        role in by_role or _is_left_out(role, flags, call) for role in open_roles
    )


def _values_hold(values: tuple[Value, ...], constraints: list[Constraint]) -> bool:
    """Each value needs one of the constraints, and there must be a value."""
    return bool(values) and all(_one_holds(value, constraints) for value in values)


def _one_holds(value: Value, constraints: list[Constraint]) -> bool:
    if isinstance(value, UrlValue):
        # A value may lead to several hosts, and reaches all of them.
        hosts = [found for found in constraints if isinstance(found, OnHost)]
        roles = {found.role for found in hosts}
        wanted = {place for role in roles for place in places_of(role, value)}
        return value.ordinary and bool(wanted) and {one.domain for one in hosts} >= wanted
    return any(_holds(value, constraint) for constraint in constraints)


def _holds(value: PathValue | SqlValue | TextValue, constraint: Constraint) -> bool:
    match (constraint, value):
        case (WithinDirectory(directory=directory), PathValue(path=path)):
            return path != directory and path.is_within(directory)
        case (ExactValue(value=wanted), PathValue(path=path)):
            return str(path) == wanted
        case (ExactValue(role=role, value=wanted), TextValue(text=text)):
            return (text.lower() if role in IGNORES_CASE else text) == wanted
        case _:
            return False


def _is_left_out(role: ArgumentRole, flags: dict[str, SameFlag], call: EscalatedCall) -> bool:
    """Whether the call omits the role's arguments, as the approved one did."""
    facts = [fact for fact in call.request.arguments if role in fact.roles]
    return bool(facts) and all(not fact.values and fact.name in flags for fact in facts)
