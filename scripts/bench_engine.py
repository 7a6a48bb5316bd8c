"""The auto-confirm engine under load; see `bench-engine`.

Every session is a proxy of its own with a server and two reviewers, all real processes; all share
one store. Half-way the first reviewer of every session is killed for good. What must hold is
checked at the end, from the replies, the audit logs, the servers' journals and the store.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import orjson
import sqlalchemy as sa
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from ironcurtain_proxy.auto_confirm.store.store import open_store
from ironcurtain_proxy.own_process.clocks import SystemClock

ROOT: Final = Path(__file__).resolve().parents[1]
SERVER: Final = ROOT / "tests/e2e/servers/scripted.py"
MANAGER: Final = ROOT / "scripts/bench_engine_manager.py"

ROLES: Final = {"read_file": "read-path", "write_file": "write-path", "delete_file": "delete-path"}
MIX: Final = (
    ("write_file", "/tmp/ironcurtain-bench", 9),  # noqa: S108  never written
    ("read_file", "/home", 4),
    ("read_file", "/tmp/ironcurtain-bench", 4),  # noqa: S108
    ("delete_file", "/srv/data", 2),
    ("write_file", "/srv/other", 1),
)
"""Tools and directories, by weight: 17 of 20 are operations that the engine's document calls safe.
"""

Line: TypeAlias = "dict[str, Line | str]"
"""What is used of a line of the audit log."""

AT_ONCE: Final = 3
"""Calls of one session at a time: a fourth that is held would be the last (X-17)."""

_LIMITS: Final = {"safe": 0.95, "decision": 5.0, "dispatch": 100.0}


@dataclass(slots=True)
class Session:
    """One agent and its proxy."""

    number: int
    home: Path
    directory: Path
    process: Process | None = None
    reader: BufferedByteReceiveStream | None = None
    waiting: dict[int, anyio.Event] = field(default_factory=dict)
    replies: dict[int, str] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    sent: int = 0

    @property
    def audit(self) -> Path:
        """Its audit log."""
        return self.directory / "audit.jsonl"

    @property
    def journal(self) -> Path:
        """What reached its server."""
        return self.directory / "journal.jsonl"

    def environment(self) -> dict[str, str]:
        """What its proxy is started with."""
        server = {
            "command": sys.executable,
            "args": [str(SERVER)],
            "annotations": "filesystem",
            "sandbox": False,
            "env": {
                "SCRIPTED_JOURNAL": str(self.journal),
                "SCRIPTED_TOOLS": str(self.home / "tools.json"),
            },
        }
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "IRONCURTAIN_SESSION_ID": f"session-{self.number}",
            "MCP_SERVERS_CONFIG": orjson.dumps({"files": server}).decode(),
            "GENERATED_DIR": str(self.home / "policy"),
            "ALLOWED_DIRECTORY": str(self.home / "work"),
            "AUDIT_LOG_PATH": str(self.audit),
            "SESSION_LOG_PATH": str(self.directory / "session.log"),
        }

    async def send(self, message: object) -> None:
        """One line to the proxy."""
        assert self.process is not None  # noqa: S101
        assert self.process.stdin is not None  # noqa: S101
        await self.process.stdin.send(orjson.dumps(message) + b"\n")

    async def call(self, tool: str, path: str) -> None:
        """Make one call, and again as long as it is told to come back later (X-17)."""
        self.made.add(path)
        reply = await self._once(tool, path)
        while "HELD: " in reply:
            # As an agent is told to: something else first, here nothing, then the same again.
            await anyio.sleep(0.02)
            reply = await self._once(tool, path)

    async def _once(self, tool: str, path: str) -> str:
        self.sent += 1
        number = self.sent
        self.waiting[number] = anyio.Event()
        params = {"name": tool, "arguments": {"path": path}}
        await self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        await self.waiting[number].wait()
        return self.replies[number]

    async def listen(self) -> None:
        """Take replies in until the proxy ends."""
        assert self.reader is not None  # noqa: S101
        while True:
            try:
                line = await self.reader.receive_until(b"\n", 1 << 20)
            except (anyio.IncompleteRead, anyio.ClosedResourceError):
                return
            message = orjson.loads(line)
            if "id" in message and "method" not in message:
                self.replies[message["id"]] = orjson.dumps(message).decode()
                if message["id"] in self.waiting:
                    self.waiting[message["id"]].set()


def store_url(home: Path, said: str | None) -> str:
    """The store, as SQLAlchemy names it."""
    return said or f"sqlite:///{home / '.ironcurtain/interactions.db'}"


def prepare(home: Path, store: str | None) -> None:
    """Write policy, annotations, tools and configuration."""
    (home / "policy").mkdir(parents=True)
    (home / "work").mkdir()
    (home / ".ironcurtain").mkdir(mode=0o700)
    stamp = {"generatedAt": "2026-01-01T00:00:00Z", "constitutionHash": "0", "inputHash": "0"}
    ask = {
        "name": "ask",
        "description": "ask",
        "principle": "bench",
        "if": {"tool": [*ROLES]},
        "then": "escalate",
        "reason": "a reviewer must agree",
    }
    annotations = [
        {
            "toolName": tool,
            "serverName": "filesystem",
            "comment": "bench",
            "args": {"path": [role]},
            "inputSchema": {},
        }
        for tool, role in ROLES.items()
    ]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = [{"name": tool, "inputSchema": schema} for tool in ROLES]
    managers = [
        {
            "name": name,
            "kind": "process",
            "command": [sys.executable, str(MANAGER), str(home / f"asked-{name}"), str(kill)],
        }
        for name, kill in (
            ("architect_manager", home / "kill"),
            ("claude_code_high_level", home / "never"),
        )
    ]
    files = {
        "policy/compiled-policy.json": {**stamp, "rules": [ask]},
        "policy/tool-annotations.json": {
            "generatedAt": "2026-01-01",
            "servers": {"filesystem": {"inputHash": "0", "tools": annotations}},
        },
        "tools.json": {"tools": tools},
        ".ironcurtain/config.json": {
            "auto_confirm": {
                "enabled": True,
                "night_mode": {"enabled": False},
                "store": {} if store is None else {"url": store},
                "reviewers": managers,
            }
        },
    }
    for name, content in files.items():
        (home / name).write_bytes(orjson.dumps(content))


def mix(chance: random.Random, number: int) -> tuple[str, str]:
    """A call: its tool and its path."""
    kinds = [(tool, path) for tool, path, weight in MIX for _ in range(weight)]
    tool, directory = chance.choice(kinds)
    return tool, f"{directory}/{number}"


async def drive(
    session: Session, calls: int, half: anyio.Event, done: list[int], pause: float
) -> None:
    """One session's calls, a few at a time, and not faster than agents would make them."""
    chance = random.Random(session.number)  # noqa: S311  a mix, not a secret
    numbers = iter(range(calls))

    async def worker() -> None:
        for number in numbers:
            await anyio.sleep(chance.expovariate(1 / (pause * AT_ONCE)) if pause else 0)
            tool, path = mix(chance, session.number * calls + number)
            await session.call(tool, path)
            done[0] += 1
            if done[0] * 2 >= done[1]:
                half.set()

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(worker)


async def run(sessions: list[Session], calls: int, kill: Path, rate: float) -> float:
    """Drive all sessions; the seconds it took."""
    half, done = anyio.Event(), [0, calls * len(sessions)]
    pause = len(sessions) / rate if rate else 0.0
    async with anyio.create_task_group() as all_tasks:
        for session in sessions:
            session.directory.mkdir()
            session.process = await anyio.open_process(
                [sys.executable, "-m", "ironcurtain_proxy"],
                env=session.environment(),
                cwd=session.directory,
                stderr=None,
            )
            assert session.process.stdout is not None  # noqa: S101
            session.reader = BufferedByteReceiveStream(session.process.stdout)
            session.waiting[0] = anyio.Event()
            all_tasks.start_soon(session.listen)
            await session.send(
                {
                    "jsonrpc": "2.0",
                    "id": 0,
                    "method": "initialize",
                    "params": {
                        "protocolVersion": "2025-06-18",
                        "capabilities": {},
                        "clientInfo": {"name": "bench", "version": "1"},
                    },
                }
            )
        for session in sessions:
            await session.waiting[0].wait()
            await session.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        began = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(drive, session, calls, half, done, pause)
            await half.wait()
            kill.touch()  # noqa: ASYNC240  one empty file
        seconds = time.perf_counter() - began
        for session in sessions:
            assert session.process is not None  # noqa: S101
            assert session.process.stdin is not None  # noqa: S101
            await session.process.stdin.aclose()
        for session in sessions:
            assert session.process is not None  # noqa: S101
            await session.process.wait()
    return seconds


def percentile(values: list[float], share: float) -> float:
    """By nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else 0.0


@dataclass(slots=True)
class Books:
    """What the audit logs, the servers and the store say."""

    forwarded: Counter[str] = field(default_factory=Counter)
    """By path: how often a server was asked."""
    final: list[Line] = field(default_factory=list)
    """The outcome of every call, without those that were told to come back."""
    latency: list[float] = field(default_factory=list)
    """Milliseconds of each engine decision."""
    dispatch: list[float] = field(default_factory=list)
    """Milliseconds from the decision to the reviewer's own clock."""
    open: int = 0
    settled: Counter[int] = field(default_factory=Counter)
    """By interaction: how often it was approved or rejected."""
    persons: int = 0


def read_books(home: Path, sessions: list[Session], store: str | None) -> Books:
    """Read them."""
    books = Books()
    for session in sessions:
        for line in session.journal.read_bytes().splitlines():
            message = orjson.loads(line)
            if message.get("method") == "tools/call":
                books.forwarded[message["params"]["arguments"]["path"]] += 1
        lines = [orjson.loads(line) for line in session.audit.read_bytes().splitlines()]
        books.final += [one for one in lines if one.get("phase") != "intent" and not held(one)]
    url = sa.make_url(store_url(home, store))
    if url.drivername.startswith("postgres"):
        url = url.set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        ask = connection.execute
        rows = ask(
            sa.text(
                "select request_id, status, decision_ms, created_at, id from claude_interactions"
            )
        )
        stored = rows.all()
        for (interaction,) in ask(
            sa.text(
                "select interaction_id from permission_decisions "
                "where decision in ('approved', 'rejected')"
            )
        ):
            books.settled[interaction] += 1
        books.persons = ask(
            sa.text("select count(*) from permission_decisions where reason = 'human'")
        ).scalar_one()
    asked: dict[str, float] = {}
    for file in home.glob("asked-architect_manager"):
        for line in file.read_text().splitlines():
            identifier, moment = line.split()
            asked.setdefault(identifier, float(moment))
    books.latency = [row[2] for row in stored if row[2] is not None]
    books.open = sum(row[1] in ("pending", "held", "escalated") for row in stored)
    books.dispatch = [(asked[row[0]] - _epoch(row[3])) * 1000 for row in stored if row[0] in asked]
    return books


def held(outcome: Line) -> bool:
    """Whether a call was told to come back: too much of its session was held."""
    return str(outcome["policyDecision"]["reason"]).startswith("Not asked")


def report(sessions: list[Session], books: Books, seconds: float) -> int:
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
    p99, dispatched = percentile(books.latency, 0.99), percentile(books.dispatch, 0.99)
    print(f"{len(sessions)} sessions, {made} calls in {seconds:.1f} s, {made / seconds:.0f}/s")  # noqa: T201
    print(f"decided by: {dict(Counter(who for _, who in deciders))}")  # noqa: T201
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
        f"engine decision p50 {percentile(books.latency, 0.5):.2f} ms, p99 {p99:.2f} ms (< 5)": p99
        < _LIMITS["decision"],
        f"dispatch to the reviewer p50 {percentile(books.dispatch, 0.5):.1f} ms, "
        f"p99 {dispatched:.1f} ms (< 100)": dispatched < _LIMITS["dispatch"],
    }
    for words, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'}  {words}")  # noqa: T201
    return 0 if all(checks.values()) else 1


def _epoch(text: object) -> float:
    return datetime.fromisoformat(str(text)).replace(tzinfo=UTC).timestamp()


def main() -> int:
    """Run the load and check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--calls", type=int, default=10_000, help="of all sessions together")
    parser.add_argument(
        "--rate", type=float, default=50, help="calls a second, all together; 0: no pause"
    )
    parser.add_argument("--store", metavar="URL", help="an empty database (default: SQLite)")
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="bench-engine-"))
    prepare(home, options.store)
    # The tables are there before the sessions are: twenty would wait for the first to make them.
    open_store(options.store, home / ".ironcurtain", SystemClock()).close()
    sessions = [Session(number, home, home / f"s{number}") for number in range(options.sessions)]
    each = options.calls // options.sessions
    try:
        seconds = anyio.run(partial(run, sessions, each, home / "kill", options.rate))
        return report(sessions, read_books(home, sessions, options.store), seconds)
    finally:
        if options.keep:
            print(home)  # noqa: T201
        else:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
