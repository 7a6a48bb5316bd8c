"""What was remembered, and whether it speaks of a call. Pure: no I/O, no clock, no log.

A grant can only turn an escalation of its own kind into a forwarded call. It lives as long as its
session, in memory, and is void when the tool is no longer defined as it was.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias, assert_never

from ironcurtain_proxy.approval.grant_patterns import HISTORY, EscalatedCall
from ironcurtain_proxy.model.annotation import ArgumentRole, same_scalar
from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.grant import (
    CapabilityPattern,
    Constraint,
    ExactValue,
    Grant,
    GrantId,
    GrantPattern,
    OnHost,
    Pattern,
    SameFlag,
    ToolPattern,
    WithinDirectory,
)
from ironcurtain_proxy.model.request import PathValue, TextValue, UrlValue, Value


def covers(grant: Grant, call: EscalatedCall, now: datetime) -> bool:
    """Whether a grant approves what the policy escalated.

    Args:
        grant: what was remembered.
        call: what is asked.
        now: aware, UTC.
    """
    pattern = grant.pattern
    # INVARIANT: only a pattern approves what the policy escalated.
    if not isinstance(pattern, GrantPattern) or not _is_of(pattern, call):
        return False
    if _has_expired(grant, now):
        return False
    flags = {found.argument: found for found in pattern.constraints if isinstance(found, SameFlag)}
    return _flags_hold(flags, call) and _roles_hold(pattern.constraints, flags, call)


def _is_of(pattern: GrantPattern | ToolPattern, call: EscalatedCall) -> bool:
    # INVARIANT: a tool that is not what it was when it was approved is asked about again.
    return (pattern.server, pattern.tool) == (call.server, call.tool) and (
        bool(call.definition) and pattern.definition == call.definition
    )


def _has_expired(grant: Grant, now: datetime) -> bool:
    return grant.expires is not None and now >= grant.expires


def _flags_hold(flags: dict[str, SameFlag], call: EscalatedCall) -> bool:
    # Both ways: what was there is there as it was, and nothing has come to it.
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
    """Each value needs one of the constraints (G23), and there must be a value."""
    return bool(values) and all(_one_holds(value, constraints) for value in values)


def _one_holds(value: Value, constraints: list[Constraint]) -> bool:
    if isinstance(value, UrlValue):
        # It may lead to several hosts, and goes to all of them.
        hosts = {found.domain for found in constraints if isinstance(found, OnHost)}
        return value.ordinary and bool(value.domains) and hosts.issuperset(value.domains)
    return any(_holds(value, constraint) for constraint in constraints)


def _holds(value: PathValue | TextValue, constraint: Constraint) -> bool:
    match (constraint, value):
        case (WithinDirectory(directory=directory), PathValue(path=path)):
            return path.is_within(directory)
        case (ExactValue(value=wanted), PathValue(path=path)):
            return str(path) == wanted
        case (ExactValue(value=wanted), TextValue(text=text)):
            return text.lower() == wanted
        case _:
            return False


def _is_left_out(role: ArgumentRole, flags: dict[str, SameFlag], call: EscalatedCall) -> bool:
    """Whether the call leaves the role's arguments out, as the one that was approved did."""
    facts = [fact for fact in call.request.arguments if role in fact.roles]
    return bool(facts) and all(not fact.values and fact.name in flags for fact in facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A grant and how often it was used."""

    grant: Grant
    uses: int = 0
    last_used: datetime | None = None
    """Aware, UTC."""


_Key: TypeAlias = tuple[str, ...]
"""Of a tool (server, tool) or a capability (its name): no two of them are equal."""


class GrantBook:
    """The grants of one session, oldest first.

    Every method is done without waiting, so tasks of one event loop never see it half-changed. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._all: dict[GrantId, Remembered] = {}
        self._by_key: dict[_Key, dict[GrantId, Grant]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, grant: Grant) -> None:
        """Remember a grant. One with the same id is replaced."""
        self.revoke(grant.id)
        self._all[grant.id] = Remembered(grant=grant)
        self._by_key.setdefault(_key_of(grant.pattern), {})[grant.id] = grant

    def restore(self, remembered: Remembered) -> None:
        """Remember a grant of an earlier session, with the uses it had."""
        self.add(remembered.grant)
        self._all[remembered.grant.id] = remembered

    def find(self, call: EscalatedCall, now: datetime) -> Grant | None:
        """The oldest grant that approves what the policy escalated."""
        for grant in self._alive((call.server, call.tool), now):
            if covers(grant, call, now):
                return grant
        return None

    def find_tool(self, call: EscalatedCall, now: datetime) -> Grant | None:
        """The grant by which the approval mode need not ask about a call's tool."""
        for grant in self._alive((call.server, call.tool), now):
            if isinstance(grant.pattern, ToolPattern) and _is_of(grant.pattern, call):
                return grant
        return None

    def find_capability(self, capability: Capability, now: datetime) -> Grant | None:
        """The grant by which the profile need not ask about a capability."""
        return next(iter(self._alive((capability,), now)), None)

    def _alive(self, key: _Key, now: datetime) -> list[Grant]:
        """The grants of a key. Forgets those that have expired."""
        grants = list(self._by_key.get(key, {}).values())
        for grant in grants:
            if _has_expired(grant, now):
                self.revoke(grant.id)
        return [grant for grant in grants if not _has_expired(grant, now)]

    def note_use(self, identifier: GrantId, now: datetime) -> int:
        """Count a use of a grant. How often it was used by now; 0: it is not remembered."""
        known = self._all.get(identifier)
        if known is None:
            return 0
        used = Remembered(grant=known.grant, uses=known.uses + 1, last_used=now)
        self._all[identifier] = used
        return used.uses

    def list(self) -> tuple[Remembered, ...]:
        """All grants, oldest first."""
        return tuple(self._all.values())

    def revoke(self, identifier: GrantId) -> bool:
        """Forget a grant. False: there is none of this id."""
        known = self._all.pop(identifier, None)
        if known is None:
            return False
        key = _key_of(known.grant.pattern)
        del self._by_key[key][identifier]
        if not self._by_key[key]:
            del self._by_key[key]
        return True

    def clear(self) -> int:
        """Forget all grants. How many there were."""
        count = len(self._all)
        self._all.clear()
        self._by_key.clear()
        return count


def _key_of(pattern: Pattern) -> _Key:
    match pattern:
        case GrantPattern() | ToolPattern():
            return pattern.server, pattern.tool
        case CapabilityPattern():
            return (pattern.capability,)
        case _:
            assert_never(pattern)
