"""The figures of the engine's load test, and the checks of what must hold; see `bench_engine`."""

import os
import resource
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

import orjson
import sqlalchemy as sa
from bench_engine_session import Session

Line: TypeAlias = "dict[str, Line | str]"
"""What is used of a line of the audit log."""

DEAD: Final = "architect_manager"
"""The reviewer that is killed."""

_LIMITS: Final = {"safe": 0.95, "decision": 3.0, "dispatch": 20.0}


def percentile(values: list[float], share: float) -> float:
    """By nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """When the load began, without the first calls, and the seconds it took."""

    began: datetime
    seconds: float


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Processor seconds: of the test with all its ended processes, of the machine, and there."""

    own: float
    machine: float
    there: float

    @classmethod
    def now(cls) -> "ProcessorTime":
        """Since the start of each."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[1:9]]
        idle = ticks[3] + ticks[4]
        return cls(sum(one.ru_utime + one.ru_stime for one in used), sum(ticks) - idle, sum(ticks))

    def since(self, before: "ProcessorTime") -> "ProcessorTime":
        """The difference."""
        return ProcessorTime(
            self.own - before.own, self.machine - before.machine, self.there - before.there
        )


@dataclass(slots=True)
class Times:
    """Milliseconds, as the store and the reviewers have written them down."""

    decision: list[float] = field(default_factory=list)
    """Of each engine decision."""
    dispatch: list[float] = field(default_factory=list)
    """From the decision to the reviewer's own clock, unless the killed reviewer was asked first."""


@dataclass(slots=True)
class Books:
    """What the audit logs, the servers and the store say."""

    forwarded: Counter[str] = field(default_factory=Counter)
    """By path: how often a server was asked."""
    final: list[Line] = field(default_factory=list)
    """The outcome of every call, without those that were told to come back."""
    first: Times = field(default_factory=Times)
    """Of the first calls of each session, before the load."""
    load: Times = field(default_factory=Times)
    """Of all other calls."""
    open: int = 0
    settled: Counter[int] = field(default_factory=Counter)
    """By interaction: how often it was approved or rejected."""
    persons: int = 0


_CALLS: Final = """
select request_id, status, decision_ms, created_at, exists (
    select 1 from escalation_history
    where interaction_id = claude_interactions.id and from_target = :dead
) as was_late
from claude_interactions
"""
_ENDS: Final = """
select interaction_id from permission_decisions where decision in ('approved', 'rejected')
"""
_PERSONS: Final = "select count(*) from permission_decisions where reason = 'human'"


def read_books(home: Path, sessions: list[Session], store: str, load: Load) -> Books:
    """Read them."""
    books = Books()
    for session in sessions:
        for line in session.journal.read_bytes().splitlines():
            message = orjson.loads(line)
            if message.get("method") == "tools/call":
                books.forwarded[message["params"]["arguments"]["path"]] += 1
        lines = [orjson.loads(line) for line in session.audit.read_bytes().splitlines()]
        books.final += [one for one in lines if one.get("phase") != "intent" and not held(one)]
    asked = _asked(home)
    url = sa.make_url(store)
    if url.drivername.startswith("postgres"):
        url = url.set(drivername="postgresql+psycopg")
    with sa.create_engine(url).connect() as connection:
        stored = connection.execute(sa.text(_CALLS), {"dead": DEAD}).all()
        books.settled.update(connection.execute(sa.text(_ENDS)).scalars())
        books.persons = connection.execute(sa.text(_PERSONS)).scalar_one()
    books.open = sum(row.status in ("pending", "held", "escalated") for row in stored)
    for row in stored:
        created = datetime.fromisoformat(str(row.created_at)).replace(tzinfo=UTC)
        times = books.load if created >= load.began else books.first
        times.decision.append(row.decision_ms)
        if row.request_id in asked and not row.was_late:
            times.dispatch.append((asked[row.request_id] - created.timestamp()) * 1000)
    return books


def _asked(home: Path) -> dict[str, float]:
    """The time at which a reviewer first read each question."""
    found: dict[str, float] = {}
    for file in home.glob("asked-*"):
        for line in file.read_text().splitlines():
            identifier, moment = line.split()
            found[identifier] = min(found.get(identifier, float(moment)), float(moment))
    return found


def held(outcome: Line) -> bool:
    """Whether a call was told to come back: too much of its session was held."""
    return str(outcome["policyDecision"]["reason"]).startswith("Not asked")


def report(sessions: list[Session], books: Books, load: Load, used: ProcessorTime) -> int:
    """Print what was found; 1 if something that must hold does not."""
    made = sum(len(session.made) for session in sessions)
    judged = [outcome for outcome in books.final if "engine" in outcome]
    deciders = [
        (outcome["engine"]["band"], str(outcome["decidedBy"]).partition(":")[0])
        for outcome in judged
    ]
    safe = [who for band, who in deciders if band in ("SAFE", "LOW")]
    risky = [who for band, who in deciders if band in ("HIGH", "CRITICAL")]
    by_engine, routed = safe.count("engine"), risky.count("reviewer")
    first, all_other = books.first, books.load
    p99, dispatched = percentile(all_other.decision, 0.99), percentile(all_other.dispatch, 0.99)
    rate = len(all_other.decision) / load.seconds
    for line in (
        f"{len(sessions)} sessions, {made} calls in {load.seconds:.1f} s, {rate:.0f}/s",
        (
            f"processors: {used.own / used.there:.0%} by this test with all its processes, "
            f"{max(0.0, used.machine - used.own) / used.there:.0%} by others"
        ),
        (
            f"first calls of a session: decision p50 {percentile(first.decision, 0.5):.2f} ms, "
            f"at most {max(first.decision):.2f} ms; dispatch p50 "
            f"{percentile(first.dispatch, 0.5):.1f} ms, at most {max(first.dispatch):.1f} ms"
        ),
        f"decided by: {dict(Counter(who for _, who in deciders))}",
    ):
        print(line)  # noqa: T201
    checks = {
        "every call was answered and stands in the audit": len(books.final) == made,
        f"decided without the engine: {made - len(judged)}": len(judged) == made,
        "none is stuck": books.open == 0,
        "none approved twice": max(books.settled.values(), default=0) == 1,
        "none carried out twice, none lost": books.forwarded.total()
        == made
        == len(books.forwarded),
        f"safe operations approved by the engine: {by_engine}/{len(safe)}": by_engine
        >= _LIMITS["safe"] * len(safe)
        > 0,
        f"HIGH and CRITICAL decided by a reviewer: {routed}/{len(risky)}": routed == len(risky) > 0,
        f"persons asked: {books.persons}": books.persons == 0,
        f"engine decision p50 {percentile(all_other.decision, 0.5):.2f} ms, p99 {p99:.2f} ms "
        f"(at most {_LIMITS['decision']:g})": p99 <= _LIMITS["decision"],
        f"{len(all_other.dispatch)} times dispatch to the reviewer p50 "
        f"{percentile(all_other.dispatch, 0.5):.1f} ms, p99 {dispatched:.1f} ms "
        f"(at most {_LIMITS['dispatch']:g})": dispatched <= _LIMITS["dispatch"],
    }
    for words, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'}  {words}")  # noqa: T201
    return 0 if all(checks.values()) else 1
