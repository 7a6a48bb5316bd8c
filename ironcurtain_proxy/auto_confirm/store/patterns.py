"""Approval patterns, proposals for new ones, and what earlier answers teach.

A proposal comes from approvals of people and reviewers; it approves nothing until an operator
promotes it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import sqlalchemy as sa
from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.engine.interaction import (
    HIGH_BANDS,
    ApproveRate,
    InteractionHistory,
    RiskBand,
    SafePath,
)
from ironcurtain_proxy.auto_confirm.store.interactions import OURS
from ironcurtain_proxy.auto_confirm.store.rows import (
    LONGEST_REGEX,
    NewPattern,
    PatternProposal,
    PatternRow,
    StoreError,
)
from ironcurtain_proxy.auto_confirm.store.tables import (
    INTERACTIONS,
    PATTERNS,
    REVIEWER_DECISIONS,
    SAFE_PATHS,
)
from ironcurtain_proxy.model.values import RealPath

_TOO_WIDE: Final = re.compile(r"/[^/]*|/(home|Users)/[^/]+|/(private|var)/[^/]+", re.ASCII)
"""Directories that are never proposed: top-level ones, and whole homes."""
_LEARNED: Final[tuple[RiskBand, ...]] = ("LOW", "MEDIUM")


def read_patterns(connection: Connection) -> tuple[PatternRow, ...]:
    """Return all patterns by name, including disabled ones."""
    rows = connection.execute(sa.select(PATTERNS).order_by(PATTERNS.c.name))
    return tuple(
        PatternRow(
            id=row.id,
            name=row.name,
            operation=row.operation,
            scope_regex=row.scope_regex,
            session_type=row.session_type,
            risk_level=row.risk_level,
            auto_approve=bool(row.auto_approve),
            created_by=row.created_by,
            usage_count=row.usage_count or 0,
            success_rate=1.0 if row.success_rate is None else row.success_rate,
        )
        for row in rows
    )


def insert_pattern(connection: Connection, pattern: NewPattern, now: datetime) -> int:
    """Add a pattern and return its id.

    Raises:
        StoreError: there is one of that name.
    """
    if connection.execute(sa.select(PATTERNS.c.id).where(_named(pattern.name))).first():
        raise StoreError(f"there is a pattern {pattern.name!r} already")
    values = {**asdict(pattern), "created_at": now}
    key = connection.execute(sa.insert(PATTERNS).values(values)).inserted_primary_key
    return 0 if key is None else int(key[0])


def switch_pattern(connection: Connection, name: str, *, on: bool) -> bool:
    """Enable or disable a pattern. Return False if there is none that may approve.

    A pattern of high risk is never switched on.
    """
    changed = sa.update(PATTERNS).where(_named(name)).values(auto_approve=on)
    if on:
        harmless = PATTERNS.c.risk_level.not_in(HIGH_BANDS) | PATTERNS.c.risk_level.is_(None)
        changed = changed.where(harmless)
    return connection.execute(changed).rowcount == 1


def count_use(connection: Connection, pattern_id: int) -> bool:
    """Count an approval of the pattern. Return False if there is no such pattern."""
    return connection.execute(_USED, {"which": pattern_id}).rowcount == 1


def count_outcome(connection: Connection, pattern_id: int, *, succeeded: bool) -> bool:
    """Add a call's outcome to the success rate: the mean over the pattern's uses."""
    ended = {"which": pattern_id, "outcome": 1.0 if succeeded else 0.0}
    return connection.execute(_ENDED, ended).rowcount == 1


_USES: Final = sa.func.coalesce(PATTERNS.c.usage_count, 0)
_RATE: Final = sa.func.coalesce(PATTERNS.c.success_rate, 1.0)
_BY_ID: Final = sa.update(PATTERNS).where(PATTERNS.c.id == sa.bindparam("which"))
_USED: Final = _BY_ID.values(usage_count=_USES + 1)
_ENDED: Final = _BY_ID.values(
    # A use is counted before its outcome is known.
    success_rate=_RATE
    + (sa.bindparam("outcome", type_=sa.Float()) - _RATE) / sa.case((_USES > 1, _USES), else_=1)
)


class _Evidence(Struct, frozen=True):
    operation: str
    session_type: str | None
    session: str
    directory: tuple[str, ...]
    band: RiskBand | None
    approved: bool


def propose(connection: Connection, min_evidence: int) -> list[PatternProposal]:
    """Propose patterns with at least this many approvals and no refusal.

    Only for operations of LOW and MEDIUM risk on canonical absolute paths. A proposal is for the
    deepest directory with enough evidence; a whole home is never proposed.
    """
    if min_evidence < 1:
        raise ValueError("min_evidence must be at least 1")
    evidence = list(_evidence(connection))
    against = [one for one in evidence if not one.approved or one.band not in _LEARNED]
    groups: dict[tuple[str, str | None], list[_Evidence]] = defaultdict(list)
    for one in evidence:
        if one.approved and one.band in _LEARNED:
            groups[one.operation, one.session_type].append(one)
    known = {
        (pattern.operation, pattern.session_type, pattern.scope_regex)
        for pattern in read_patterns(connection)
    }
    found = [
        _proposal(operation, session_type, directory, members)
        for (operation, session_type), members in sorted(
            groups.items(), key=lambda one: (one[0][0], one[0][1] or "")
        )
        for directory, members in _directories(members, min_evidence)
        if not any(one.operation == operation and _within(one, directory) for one in against)
    ]
    return [
        one
        for one in found
        if (one.operation, one.session_type, one.scope_regex) not in known
        and len(one.scope_regex) <= LONGEST_REGEX
    ]


def _evidence(connection: Connection) -> Iterable[_Evidence]:
    rows = connection.execute(
        sa.select(INTERACTIONS, REVIEWER_DECISIONS.c.decision)
        .select_from(REVIEWER_DECISIONS.join(INTERACTIONS))
        .where(OURS & REVIEWER_DECISIONS.c.decision.in_(("approved", "rejected")))
        .order_by(REVIEWER_DECISIONS.c.id)
    )
    for row in rows:
        parts = _canonical_parts(row.scope)
        if parts is not None:
            yield _Evidence(
                operation=row.operation or "",
                session_type=row.session_type,
                session=row.session_name or "",
                directory=parts[:-1],
                band=row.risk_band,
                approved=row.decision == "approved",
            )


def _canonical_parts(scope: str | None) -> tuple[str, ...] | None:
    """Return the components of a canonical absolute path, or None for a branch, for example."""
    if scope is None or not scope.startswith("/") or not scope.isprintable():
        return None
    parts = tuple(scope[1:].split("/"))
    return None if any(part in {"", ".", ".."} for part in parts) else parts


def _directories(
    members: Sequence[_Evidence], min_evidence: int
) -> Iterable[tuple[tuple[str, ...], list[_Evidence]]]:
    """Yield the deepest directories with enough evidence, each approval counted once."""
    above = {
        one.directory[:length] for one in members for length in range(1, len(one.directory) + 1)
    }
    left = list(members)
    for directory in sorted(above, key=lambda parts: (-len(parts), parts)):
        inside = [one for one in left if _within(one, directory)]
        if len(inside) < min_evidence or _TOO_WIDE.fullmatch("/" + "/".join(directory)):
            continue
        left = [one for one in left if not _within(one, directory)]
        yield directory, inside


def _within(one: _Evidence, directory: tuple[str, ...]) -> bool:
    return one.directory[: len(directory)] == directory


def _proposal(
    operation: str, session_type: str | None, parts: tuple[str, ...], members: Sequence[_Evidence]
) -> PatternProposal:
    directory = "/" + "/".join(parts)
    risk: RiskBand = "MEDIUM" if any(one.band == "MEDIUM" for one in members) else "LOW"
    whose = f"{session_type} " if session_type else ""
    return PatternProposal(
        name=f"{whose}{operation} in {directory}",
        operation=operation,
        directory=directory,
        scope_regex=f"{re.escape(directory)}/.*",
        session_type=session_type,
        risk_level=risk,
        approved=len(members),
        rejected=0,
        sessions=len({one.session for one in members}),
    )


def _named(name: str) -> "sa.ColumnElement[bool]":
    return PATTERNS.c.name == name


# --- what earlier answers teach -------------------------------------------------------------------
# The engine's lasting knowledge: patterns, safe paths, approve rates, and recent approvals.
#
# Rates are counted once and then added to: a store may hold years of decisions, and every
# session asks again and again.


LATELY: Final = 1000
"""The number of recent approvals that count."""


class Learned(Struct, frozen=True, kw_only=True):
    """The lessons of operators, people and reviewers, in all sessions."""

    patterns: tuple[PatternRow, ...]
    """By name, including disabled ones."""
    safe_paths: tuple[SafePath, ...]
    """In the order of their addition."""
    rates: Mapping[tuple[str, str], ApproveRate]
    """The approve rates of people and reviewers, by operation and scope."""
    last_decision: int
    """The id of the last decision in `rates`, or 0 if there is none."""
    history: InteractionHistory
    """The calls approved lately."""


_APPROVED: Final = REVIEWER_DECISIONS.c.decision == "approved"
_SCOPE: Final = sa.func.coalesce(INTERACTIONS.c.scope, "")
_RATES: Final = (
    sa.select(
        INTERACTIONS.c.operation,
        _SCOPE,
        sa.func.count().filter(_APPROVED),
        sa.func.count(),
        sa.func.max(REVIEWER_DECISIONS.c.id),
    )
    .select_from(REVIEWER_DECISIONS.join(INTERACTIONS))
    .where(OURS & REVIEWER_DECISIONS.c.decision.in_(("approved", "rejected")))
    .where(REVIEWER_DECISIONS.c.id > sa.bindparam("after"))
    .group_by(INTERACTIONS.c.operation, _SCOPE)
)
"""Decisions of machines do not count, so the engine cannot feed itself."""

_SAFE_PATHS: Final = sa.select(SAFE_PATHS.c.path, SAFE_PATHS.c.operation).order_by(SAFE_PATHS.c.id)
_LATELY: Final = (
    sa.select(INTERACTIONS.c.operation, INTERACTIONS.c.scope)
    .where(OURS & INTERACTIONS.c.status.in_(("approved", "auto_approved")))
    .order_by(INTERACTIONS.c.id.desc())
    .limit(LATELY)
)


def read_learned(connection: Connection, before: Learned | None = None) -> Learned:
    """Read the lasting knowledge.

    Args:
        connection: the store's.
        before: a recent result, whose history stays, and whose rates get the later decisions. It
            still counts decisions that were removed since, and on PostgreSQL it can lack one that
            was being written.
    """
    rates, last = _rates(connection, before)
    return Learned(
        patterns=read_patterns(connection),
        safe_paths=tuple(
            [
                SafePath(path=path, operation=operation)
                for path, operation in connection.execute(_SAFE_PATHS)
            ]
        ),
        rates=rates,
        last_decision=last,
        history=_history(connection) if before is None else before.history,
    )


def _rates(
    connection: Connection, before: Learned | None
) -> tuple[Mapping[tuple[str, str], ApproveRate], int]:
    after = 0 if before is None else before.last_decision
    rows = connection.execute(_RATES, {"after": after}).all()
    if before is not None and not rows:
        return before.rates, after
    rates = {} if before is None else dict(before.rates)
    for operation, scope, approved, decided, last in rows:
        known = rates.get((operation, scope), ApproveRate(0, 0))
        rates[operation, scope] = ApproveRate(known.approved + approved, known.decided + decided)
        after = max(after, last)
    return rates, after


def _history(connection: Connection) -> InteractionHistory:
    """Read what was approved lately. A scope such as a branch gives no directory."""
    rows = connection.execute(_LATELY).all()
    paths = {line for _, scope in rows for line in (scope or "").split("\n") if line[:1] == "/"}
    # Most paths share their directory with another one.
    directories = {path.rstrip("/").rpartition("/")[0] for path in paths}
    return InteractionHistory(
        operations=Counter(operation for operation, _ in rows),
        directories=frozenset(map(RealPath.from_text, directories)),
    )
