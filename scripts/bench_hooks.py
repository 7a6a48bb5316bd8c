"""What a hook costs before a call, and a command that runs in a view.

They stand beside an interpreter of Python and of Node that do nothing, and the command alone.

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

_FIRST = 5
"""The first rounds read the disk, and do not count."""
ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ironcurtain_proxy.hooks.dialects import DIALECTS  # noqa: E402
from ironcurtain_proxy.hooks.launching import hook_words  # noqa: E402
from tests.e2e.confined_installation import PATH  # noqa: E402
from tests.hooks.hooked import NODE, HookedHome, as_claude  # noqa: E402


def main(arguments: list[str]) -> None:
    """Measure, and print."""
    rounds = int(arguments[0]) if arguments else 200
    with tempfile.TemporaryDirectory() as place:
        home = HookedHome(Path(place), path=PATH)
        os.chdir(home.workspace)
        home.fire("SessionStart", {"source": "startup"})
        try:
            _print(_hooks(home, rounds))
            _print(_commands(home, rounds // 2))
        finally:
            home.end_session()
            os.chdir(ROOT)


def _hooks(home: HookedHome, rounds: int) -> dict[str, list[float]]:
    hook = hook_words(DIALECTS["claude"], "PreToolUse", home.state)
    times: dict[str, list[float]] = {}
    for number in range(rounds + 5):
        event = home.call("Read", {"file_path": str(home.workspace / str(number))})
        for name, words, given in (
            ("the whole hook", hook, orjson.dumps(event)),
            ("empty Python", [sys.executable, "-I", "-S", "-c", ""], b""),
            ("empty Node", [str(NODE), "-e", "0"], b""),
        ):
            _time(times, name, words, home, given, counts=number >= _FIRST)
        home.fire("PostToolUse", {**event, "tool_response": {}})
    return times


def _commands(home: HookedHome, rounds: int) -> dict[str, list[float]]:
    prefix = home.prefixed()["CLAUDE_CODE_SHELL_PREFIX"]
    times: dict[str, list[float]] = {}
    for number in range(rounds + _FIRST):
        # The same call again and again would open the circuit.
        command = f"echo {number} > made; rm made"
        event, text = home.held(command), as_claude(command)
        for name, words in (
            ("a command in a view", [prefix, text]),
            ("the command alone", ["/bin/bash", "-c", text]),
        ):
            _time(times, name, words, home, counts=number >= _FIRST)
        home.fire("PostToolUse", {**event, "tool_response": {}})
    return times


def _time(
    times: dict[str, list[float]],
    name: str,
    words: list[str],
    home: HookedHome,
    given: bytes = b"",
    *,
    counts: bool,
) -> None:
    began = time.perf_counter()
    subprocess.run(words, input=given, env=home.environment(), capture_output=True)  # noqa: PLW1510
    if counts:
        times.setdefault(name, []).append(1000 * (time.perf_counter() - began))


def _print(times: dict[str, list[float]]) -> None:
    for name, found in times.items():
        found.sort()
        last = found[min(len(found) - 1, len(found) * 99 // 100)]
        print(f"{name:20} p50 {statistics.median(found):6.1f} p99 {last:6.1f}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
