"""The book of one session's grants.

A grant lives as long as its session, in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias, assert_never

from ironcurtain_proxy.grants.families import covering, of_command
from ironcurtain_proxy.grants.matching import covers, has_expired, is_of
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.grants.whole_calls import is_granted_whole
from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.grant import (
    CallPattern,
    CapabilityPattern,
    FamilyPattern,
    Grant,
    GrantId,
    GrantPattern,
    Pattern,
    ToolPattern,
)
from ironcurtain_proxy.model.opening import SandboxOpening


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A grant with the number of its uses."""

    grant: Grant
    uses: int = 0
    last_used: datetime | None = None
    """Aware, UTC."""


_GrantKey: TypeAlias = tuple[str, ...]
"""The key of a tool (server, tool) or of a capability (its name), never equal to each other."""


class GrantBook:
    """The grants of one session, oldest first.

    Every method is done without waiting, so tasks of one event loop never see it half-changed. Not
    thread-safe.
    """

    def __init__(
        self,
        on_taken_back: Callable[[], object] = lambda: None,
        banned: frozenset[str] = frozenset(),
    ) -> None:
        """Begin without grants.

        Args:
            on_taken_back: called when a grant ends, which may have opened a sandbox.
            banned: the ids of grants that are not remembered.
        """
        self._on_taken_back = on_taken_back
        self._all: dict[GrantId, Remembered] = {}
        self._by_key: dict[_GrantKey, dict[GrantId, Grant]] = {}
        self._banned = banned

    def __len__(self) -> int:
        return len(self._all)

    def add(self, grant: Grant) -> None:
        """Remember a grant. One with the same id is replaced."""
        self.revoke(grant.id)
        if grant.id in self._banned:
            return
        self._all[grant.id] = Remembered(grant=grant)
        self._by_key.setdefault(_key_of(grant.pattern), {})[grant.id] = grant

    def restore(self, remembered: Remembered) -> None:
        """Remember a grant of an earlier session, with the uses it had."""
        self.add(remembered.grant)
        if remembered.grant.id in self._all:
            self._all[remembered.grant.id] = remembered

    def find(self, call: EscalatedCall, now: datetime) -> Grant | None:
        """The oldest grant that approves what the policy escalated."""
        for grant in self._alive((call.server, call.tool), now, call.opening):
            if covers(grant, call, now):
                return grant
        return None

    def find_tool(self, call: EscalatedCall, now: datetime) -> Grant | None:
        """The grant that answers the approval mode's question about a tool."""
        for grant in self._alive((call.server, call.tool), now, call.opening):
            if isinstance(grant.pattern, ToolPattern) and is_of(grant.pattern, call):
                return grant
        return None

    def find_call(self, call: EscalatedCall, now: datetime) -> Grant | None:
        """The grant of the identical call, or of a tool without annotation."""
        for grant in self._alive((call.server, call.tool), now, call.opening):
            if is_granted_whole(grant, call):
                return grant
        return None

    def find_command(self, call: EscalatedCall, now: datetime) -> tuple[Grant, ...] | None:
        """The grants that together approve a shell command."""
        alive = self._alive((call.server, call.tool), now, call.opening)
        return covering(tuple([grant for grant in alive if of_command(grant, call)]), call)

    def find_capability(
        self, capability: Capability, now: datetime, opening: SandboxOpening | None = None
    ) -> Grant | None:
        """Return the grant that answers the profile's question about a capability.

        Args:
            capability: its name.
            now: aware, UTC.
            opening: what the call needs beyond its sandbox.
        """
        return next(iter(self._alive((capability,), now, opening)), None)

    def _alive(self, key: _GrantKey, now: datetime, opening: SandboxOpening | None) -> list[Grant]:
        """Return the grants of a key, those first that name all of an opening.

        Expired grants are removed.
        """
        grants = list(self._by_key.get(key, {}).values())
        for grant in grants:
            if has_expired(grant, now):
                self.revoke(grant.id)
        alive = [grant for grant in grants if not has_expired(grant, now)]
        return sorted(alive, key=lambda grant: not grant.opened.names(opening))

    def note_use(self, identifier: GrantId, now: datetime) -> int:
        """Count a use of a grant. Returns the number of uses; 0: there is no such grant."""
        known = self._all.get(identifier)
        if known is None:
            return 0
        used = Remembered(grant=known.grant, uses=known.uses + 1, last_used=now)
        self._all[identifier] = used
        return used.uses

    def ban(self, identifiers: frozenset[str]) -> None:
        """Remove the grants of these ids, and remember none of them again."""
        self._banned = identifiers
        for identifier in identifiers:
            self.revoke(GrantId(identifier))

    def list(self) -> tuple[Remembered, ...]:
        """All grants, oldest first."""
        return tuple(self._all.values())

    def revoke(self, identifier: GrantId) -> bool:
        """Remove a grant. False: there is none of this id."""
        known = self._all.pop(identifier, None)
        if known is None:
            return False
        key = _key_of(known.grant.pattern)
        del self._by_key[key][identifier]
        if not self._by_key[key]:
            del self._by_key[key]
        self._on_taken_back()
        return True

    def clear(self) -> int:
        """Remove all grants. Returns their number."""
        count = len(self._all)
        self._all.clear()
        self._by_key.clear()
        self._on_taken_back()
        return count


def _key_of(pattern: Pattern) -> _GrantKey:
    match pattern:
        case GrantPattern() | ToolPattern() | FamilyPattern() | CallPattern():
            return pattern.server, pattern.tool
        case CapabilityPattern():
            return (pattern.capability,)
        case _:
            assert_never(pattern)
