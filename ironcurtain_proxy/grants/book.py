"""The grants of a session, which live in memory and as long as it, and the budgets of plans.

A plan is a list of announced calls. Its approval is a budget: capabilities, and a number of calls
of each tool, until the run ends. A budget settles only the profile's reasons; every call still
passes the policy.

A tool without an annotation, an argument without a role, and SQL have no pattern that is both
narrow and useful. There the identical call is remembered. Identifiers have a pattern, but the next
call names another thing: there the whole tool is offered besides.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, TypeAlias, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.grants.families import covering, digest_of, identical_call, of_command
from ironcurtain_proxy.grants.patterns import HISTORY, EscalatedCall, covers, has_expired, is_of
from ironcurtain_proxy.model.annotation import ArgumentRole, Capability
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.grant import (
    NOTHING_OPENED,
    CallPattern,
    CapabilityPattern,
    FamilyPattern,
    Grant,
    GrantId,
    GrantPattern,
    Pattern,
    SandboxOpening,
    ToolPattern,
)
from ironcurtain_proxy.model.request import ArgumentFact, may_be_a_place, sql_of
from ironcurtain_proxy.model.values import lazy

# --- whole calls


_NO_PATTERN: Final[frozenset[ArgumentRole]] = frozenset({"sql", "unclear"})
_OWN: Final[frozenset[ArgumentRole]] = frozenset({"identifier", "unclear", "none"})
_GRAVE: Final = frozenset({"sends", "runs", "destroys"})
_DELETES: Final[frozenset[ArgumentRole]] = frozenset({"delete-path", "delete-history"})


def is_never_remembered(call: EscalatedCall) -> bool:
    """Return whether a call is asked about each time, because it deletes things without a path.

    A path says what is deleted, and a pattern can be as narrow as that.
    """
    if call.command is not None:
        return False
    sql = sql_of(call.request)
    if sql is not None:
        return sql.effect in {"destroys", "runs"}
    roles = {role for fact in call.request.arguments for role in fact.roles}
    return call.request.effect == "destroys" and _DELETES.isdisjoint(roles)


def whole_call_candidates(call: EscalatedCall) -> tuple[CallPattern, ...]:
    """Return the candidates of a call that no pattern describes.

    It is empty if patterns describe it.
    """
    if not call.definition or call.command is not None or is_never_remembered(call):
        return ()
    return tuple(_candidates(call))


def _candidates(call: EscalatedCall) -> Iterator[CallPattern]:
    if call.request.annotated and (HISTORY & {*call.open_roles} or _has_pattern(call)):
        return
    identical = identical_call(call)
    if identical is None:
        return
    yield identical
    if not call.request.annotated or names_only_its_own(call):
        yield _whole_tool(call, identical)


def _has_pattern(call: EscalatedCall) -> bool:
    """Return whether a pattern covers what the call names.

    Omitted arguments are part of the pattern.
    """
    roles = frozenset(call.open_roles)
    named = frozenset([role for role in roles if call.values(role)])
    return not roles & _NO_PATTERN or (bool(named) and not named & _NO_PATTERN)


def whole_tool_candidate(call: EscalatedCall) -> CallPattern | None:
    """Return the candidate for every call of a described tool.

    It is None if there is none besides patterns.
    """
    if not call.definition or call.command is not None or is_never_remembered(call):
        return None
    identical = identical_call(call)
    is_own = identical is not None and names_only_its_own(call)
    return _whole_tool(call, identical) if identical is not None and is_own else None


def _whole_tool(call: EscalatedCall, identical: CallPattern) -> CallPattern:
    tool = visible(f"{call.server}/{call.tool}")
    which = "that names no path or URL" if call.request.annotated else "whatever its arguments are"
    said = f"every call of {tool} in this session, {which}"
    return replace(identical, digest=None, description=said)


def names_only_its_own(call: EscalatedCall) -> bool:
    """Return whether a described call names nothing but things of its server's own.

    Nothing in it is, or looks like, a path, a URL, a person or a statement, no name is that of a
    secret file, and its tool is not known to send, to run or to delete.
    """
    request = call.request
    return (
        request.annotated
        and request.effect not in _GRAVE
        and all(_OWN.issuperset(fact.roles) for fact in request.arguments)
        and not any(map(_names_a_place, request.arguments))
    )


def _names_a_place(fact: ArgumentFact) -> bool:
    """Return whether an unknown server may open what it is given, and that is not its own."""
    if any(map(may_be_a_place, fact.values)):
        return True
    from ironcurtain_proxy.shell.places import names_a_secret_file  # noqa: PLC0415  few calls are asked about

    # A text without a role, such as the body of a note, may mention a secret's name.
    is_name = not {"identifier", "unclear"}.isdisjoint(fact.roles)
    texts = [value.text for value in fact.values if is_name]
    return any(names_a_secret_file(text) or _REACHES.search(text) for text in texts)


_REACHES: Final = lazy(
    r"[\w.+-]@(?:[\w-]+\.)+[^\W\d_]{2}|(?<![\w.-])(?:[\w-]+\.)+[^\W\d_]{2,}(?::\d+)?[/?#]\S"
)
"""An address of a person, or a page without `https://`: no thing of a server's own."""


def is_granted_whole(grant: Grant, call: EscalatedCall) -> bool:
    """Return whether a grant is of the identical call, or of its tool as a whole."""
    pattern = grant.pattern
    if not isinstance(pattern, CallPattern) or call.command is not None or not is_of(pattern, call):
        return False
    # INVARIANT: what the annotation says of a call counts, however the tool was remembered.
    if pattern.digest is None:
        return not call.request.annotated or names_only_its_own(call)
    return pattern.digest == digest_of(call)


# --- book


class Remembered(Struct, frozen=True, kw_only=True):
    """A grant with the number of its uses."""

    grant: Grant
    uses: int = 0
    last_used: datetime | None = None
    """Aware, UTC."""


_GrantKey: TypeAlias = tuple[str, ...]
"""The key of a tool (server, tool) or of a capability (its name), never equal to each other."""


class GrantBook(Struct, eq=False):
    """The grants of one session, oldest first.

    Every method is done without waiting, so tasks of one event loop never see it half-changed. Not
    thread-safe.
    """

    on_taken_back: Callable[[], object] = lambda: None
    """Called when a grant ends, which may have opened a sandbox."""
    banned: frozenset[str] = frozenset()
    """The ids of grants that are not remembered."""
    by_id: dict[GrantId, Remembered] = field(default_factory=dict)
    _by_key: dict[_GrantKey, dict[GrantId, Grant]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, grant: Grant) -> None:
        """Remember a grant. One with the same id is replaced."""
        self.revoke(grant.id)
        if grant.id in self.banned:
            return
        self.by_id[grant.id] = Remembered(grant=grant)
        self._by_key.setdefault(_key_of(grant.pattern), {})[grant.id] = grant

    def restore(self, remembered: Remembered) -> None:
        """Remember a grant of an earlier session, with the uses it had."""
        self.add(remembered.grant)
        if remembered.grant.id in self.by_id:
            self.by_id[remembered.grant.id] = remembered

    def find(self, call: EscalatedCall, now: datetime) -> Grant | None:
        """Return the oldest grant that approves what the policy escalated."""
        return next((one for one in self._of(call, now) if covers(one, call, now)), None)

    def find_tool(self, call: EscalatedCall, now: datetime) -> Grant | None:
        """Return the grant that answers the approval mode's question about a tool."""
        for one in self._of(call, now):
            if isinstance(one.pattern, ToolPattern) and is_of(one.pattern, call):
                return one
        return None

    def find_call(self, call: EscalatedCall, now: datetime) -> Grant | None:
        """Return the grant of the identical call, or of a tool without annotation."""
        return next((one for one in self._of(call, now) if is_granted_whole(one, call)), None)

    def find_command(self, call: EscalatedCall, now: datetime) -> tuple[Grant, ...] | None:
        """Return the grants that together approve a shell command."""
        given = [grant for grant in self._of(call, now) if of_command(grant, call)]
        return covering(tuple(given), call)

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

    def _of(self, call: EscalatedCall, now: datetime) -> list[Grant]:
        return self._alive((call.server, call.tool), now, call.opening)

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
        """Count a use of a grant. Returns the number of uses, or 0 if there is no such grant."""
        known = self.by_id.get(identifier)
        if known is None:
            return 0
        used = Remembered(grant=known.grant, uses=known.uses + 1, last_used=now)
        self.by_id[identifier] = used
        return used.uses

    def ban(self, identifiers: frozenset[str]) -> None:
        """Remove the grants of these ids, and remember none of them again."""
        self.banned = identifiers
        for identifier in identifiers:
            self.revoke(GrantId(identifier))

    def list(self) -> tuple[Remembered, ...]:
        """Return all grants, oldest first."""
        return tuple(self.by_id.values())

    def revoke(self, identifier: GrantId) -> bool:
        """Remove a grant. Return False if there is none of this id."""
        known = self.by_id.pop(identifier, None)
        if known is None:
            return False
        key = _key_of(known.grant.pattern)
        del self._by_key[key][identifier]
        if not self._by_key[key]:
            del self._by_key[key]
        self.on_taken_back()
        return True

    def clear(self) -> int:
        """Remove all grants. Returns their number."""
        count = len(self.by_id)
        self.by_id.clear()
        self._by_key.clear()
        self.on_taken_back()
        return count


def _key_of(pattern: Pattern) -> _GrantKey:
    match pattern:
        case GrantPattern() | ToolPattern() | FamilyPattern() | CallPattern():
            return pattern.server, pattern.tool
        case CapabilityPattern():
            return (pattern.capability,)
        case _:
            assert_never(pattern)


# --- budget


Tool: TypeAlias = tuple[str, str]
"""The operator's name of the server, and the tool."""

MAX_RUNS: Final = 100
"""The most open runs of a session, which an agent could open without end."""


class Budget(Struct, kw_only=True):
    """The remaining budget of one run."""

    id: GrantId
    capabilities: frozenset[Capability]
    calls: Counter[Tool]
    """The remaining calls of each tool."""
    expires: datetime
    """Aware, UTC."""
    opened: SandboxOpening = NOTHING_OPENED
    """The access beyond the sandbox that the plan's question named."""
    private: bool = False
    """Whether only calls that name the run may use it: those of a composite tool."""
    parent: "Budget | None" = None
    children: "list[Budget]" = field(default_factory=list)

    def covers(self, tool: Tool, capabilities: Iterable[Capability]) -> bool:
        """Return whether a call is within the budget."""
        return self.calls[tool] > 0 and self.capabilities.issuperset(capabilities)

    def holds(self, calls: Mapping[Tool, int], capabilities: frozenset[Capability]) -> bool:
        """Return whether a plan of such calls is within the budget."""
        enough = all(self.calls[tool] >= count for tool, count in calls.items())
        return enough and self.capabilities >= capabilities


class BudgetBook:
    """The open runs of one session, oldest first.

    Every method is done without waiting, so tasks of one event loop never see it half-changed. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._open: dict[GrantId, Budget] = {}

    def open(self, budget: Budget) -> bool:
        """Begin a run. Return False if there are too many.

        A child's budget is taken from its parent (the caller has checked that it fits).
        """
        if len(self._open) >= MAX_RUNS:
            return False
        if budget.parent is not None:
            budget.parent.calls.subtract(budget.calls)
            budget.parent.children.append(budget)
        self._open[budget.id] = budget
        return True

    def get(self, identifier: str, now: datetime) -> Budget | None:
        """Return an open run."""
        self._tidy(now)
        return self._open.get(GrantId(identifier))

    def find(
        self,
        tool: Tool,
        capabilities: frozenset[Capability],
        now: datetime,
        run: GrantId | None = None,
    ) -> Budget | None:
        """Return the first run that covers a call, or None if no run does.

        Its budget stays unchanged.

        Args:
            tool: the tool.
            capabilities: the capabilities to cover.
            now: aware, UTC.
            run: the one run that the call belongs to, or None if any that is not private.
        """
        self._tidy(now)
        for budget in list(self._open.values()):
            if budget.private if run is None else budget.id != run:
                continue
            if budget.covers(tool, capabilities):
                return budget
        return None

    def spend(self, budget: Budget, tool: Tool) -> None:
        """Subtract one call from a run just found. The last call ends it."""
        budget.calls[tool] -= 1
        if not +budget.calls and not budget.children:
            self.close(budget.id)

    def close(self, identifier: GrantId) -> bool:
        """End a run with its children. A child's remaining budget is not returned to its parent.

        False: it is not open.
        """
        budget = self._open.pop(identifier, None)
        if budget is None:
            return False
        for child in list(budget.children):
            self.close(child.id)
        if budget.parent is not None and budget in budget.parent.children:
            budget.parent.children.remove(budget)
        return True

    def clear(self) -> int:
        """End all runs. Returns their number."""
        count = len(self._open)
        self._open.clear()
        return count

    def _tidy(self, now: datetime) -> None:
        for budget in list(self._open.values()):
            if now >= budget.expires:
                self.close(budget.id)
