"""What a hook costs before a call, beside an interpreter of Python and of Node that do nothing.

    .venv/bin/python scripts/bench_hooks.py [ROUNDS]

Launcher, stub, socket and decision are those of a real session; this process is the client. All are
started in turn. Prints the median and the 99th percentile of each, in milliseconds.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ironcurtain_proxy.hooks.launching import hook_words  # noqa: E402
from tests.hooks.hooked import NODE, HookedHome  # noqa: E402


def main(arguments: list[str]) -> None:
    """Measure, and print."""
    rounds = int(arguments[0]) if arguments else 200
    with tempfile.TemporaryDirectory() as place:
        home = HookedHome(Path(place))
        os.chdir(home.workspace)
        home.fire("SessionStart", {"source": "startup"})
        try:
            _measure(home, rounds)
        finally:
            home.end_session()
            os.chdir(ROOT)


def _measure(home: HookedHome, rounds: int) -> None:
    hook = hook_words("claude", "PreToolUse", home.state)
    times: dict[str, list[float]] = {}
    for number in range(rounds + 5):
        event = home.call("Read", {"file_path": str(home.workspace / str(number))})
        for name, words, given in (
            ("the whole hook", hook, orjson.dumps(event)),
            ("empty Python", [sys.executable, "-I", "-S", "-c", ""], b""),
            ("empty Node", [str(NODE), "-e", "0"], b""),
        ):
            began = time.perf_counter()
            subprocess.run(words, input=given, env=home.environment(), capture_output=True)  # noqa: PLW1510
            if number >= 5:  # noqa: PLR2004  the first ones read the disk
                times.setdefault(name, []).append(1000 * (time.perf_counter() - began))
        home.fire("PostToolUse", {**event, "tool_response": {}})
    for name, found in times.items():
        found.sort()
        last = found[min(len(found) - 1, len(found) * 99 // 100)]
        print(f"{name:16} p50 {statistics.median(found):6.1f} p99 {last:6.1f}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
