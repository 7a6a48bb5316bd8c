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
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import orjson
from bench_engine_books import DEAD, Load, ProcessorTime, read_books, report
from bench_engine_session import ROOT, Session

from ironcurtain_proxy.auto_confirm.store.store import open_store
from ironcurtain_proxy.own_process import SystemClock

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

FIRST: Final = 2
"""Calls of each session that are made before the load."""

AT_ONCE: Final = 3
"""Calls of one session at a time: a fourth that is held would be the last (X-17)."""


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
            (DEAD, home / "kill"),
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
    numbers = iter(range(FIRST, calls))

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


async def run(sessions: list[Session], calls: int, kill: Path, rate: float) -> Load:
    """Drive all sessions."""
    half, done = anyio.Event(), [0, (calls - FIRST) * len(sessions)]
    pause = len(sessions) / rate if rate else 0.0
    async with anyio.create_task_group() as all_tasks:
        for session in sessions:
            await session.start()
            all_tasks.start_soon(session.listen)
        for session in sessions:
            await session.greet()
        # The first calls of a session find no reviewer started: one for each of the two. One after
        # the other, since sessions do not begin in the same moment.
        for session in sessions:
            await session.call("delete_file", f"/srv/data/{session.number * calls}")
            await session.call("write_file", f"/srv/other/{session.number * calls + 1}")
        began, clock = SystemClock().now(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(drive, session, calls, half, done, pause)
            await half.wait()
            kill.touch()  # noqa: ASYNC240  one empty file
        seconds = time.perf_counter() - clock
        for session in sessions:
            await session.close()
        for session in sessions:
            assert session.process is not None  # noqa: S101
            await session.process.wait()
    return Load(began, seconds)


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
    used = ProcessorTime.now()
    home = Path(tempfile.mkdtemp(prefix="bench-engine-"))
    prepare(home, options.store)
    # The tables are there before the sessions are: twenty would wait for the first to make them.
    open_store(options.store, home / ".ironcurtain", SystemClock()).close()
    sessions = [Session(number, home, home / f"s{number}") for number in range(options.sessions)]
    each = options.calls // options.sessions
    try:
        load = anyio.run(partial(run, sessions, each, home / "kill", options.rate))
        books = read_books(home, sessions, store_url(home, options.store), load)
        return report(sessions, books, load, ProcessorTime.now().since(used))
    finally:
        if options.keep:
            print(home)  # noqa: T201
        else:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
