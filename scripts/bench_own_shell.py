"""What a view of its own costs a command, beside a shell server in a sandbox of srt.

    .venv/bin/python scripts/bench_own_shell.py [FILES] [ROUNDS]

Both servers stand behind a proxy of their own, with containment, before equal workspaces. They get
the same commands in turn. Prints the median and the 90th percentile of each, in milliseconds.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.e2e.installation import Installation  # noqa: E402
from tests.e2e.raw_client import RawClient  # noqa: E402
from tests.e2e.test_containment import contained  # noqa: E402
from tests.e2e.test_own_shell import shelled  # noqa: E402

COMMANDS = {
    "nothing": "sh -c true",
    "one file": "echo {n} > made",
    "git status": "git status --short > /dev/null; true",
    "50,000 new files": (
        "mkdir node_modules.{n}; cd node_modules.{n}; "
        'python3 -c \'import os; [(os.mkdir(str(i)), [open(f"{{i}}/{{j}}", "w").write("x" * 500)'
        " for j in range(100)]) for i in range(500)]'"
    ),
}


def main(arguments: list[str]) -> None:
    """Measure, and print."""
    files = int(arguments[0]) if arguments else 10_000
    rounds = int(arguments[1]) if len(arguments) > 1 else 30
    with tempfile.TemporaryDirectory() as place:
        own, other = Installation(Path(place, "own")), Installation(Path(place, "other"))
        agents: list[tuple[str, RawClient, str]] = []
        for installation in (own, other):
            _fill(installation.workspace, files)
        agents = [
            ("own shell", shelled(own), "run_command"),
            ("other server", contained(other), "shell"),
        ]
        try:
            _measure(agents, rounds, {"other server": str(other.workspace)})
        finally:
            own.end()
            other.end()


def _fill(workspace: Path, files: int) -> None:
    for number in range(files // 100):
        directory = workspace / f"d{number}"
        directory.mkdir()
        for name in range(100):
            (directory / str(name)).write_text("x")


def _measure(agents: list[tuple[str, RawClient, str]], rounds: int, places: dict[str, str]) -> None:
    for what, command in COMMANDS.items():
        times: dict[str, list[float]] = {}
        for number in range(3 if "50,000" in what else rounds):
            for name, agent, tool in agents:
                text = command.format(n=number)
                if name in places:
                    text = f"cd {places[name]} && {{ {text}; }}"
                began = time.perf_counter()
                agent.call(tool, {"command": text})
                times.setdefault(name, []).append(1000 * (time.perf_counter() - began))
        for name, found in times.items():
            found.sort()
            ninety = found[min(len(found) - 1, len(found) * 9 // 10)]
            print(f"{what:18} {name:14} p50 {statistics.median(found):9.1f} p90 {ninety:9.1f}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
