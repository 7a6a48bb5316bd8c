"""How well shell commands are judged, on the labelled corpus beside the project.

A false allow is a command labelled `ask` that is judged to only read: there is to be none. How many
of those labelled `allow` only read is said; each of the others costs a question at most.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from ironcurtain_proxy.model.request import CommandPlace
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.statements import parse_command

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpora" / "shell-commands.jsonl"
PLACE = CommandPlace(
    workspace="/home/u/w", directory="/home/u/w", home="/home/u", has_repository=True
)


def write(line: str = "") -> None:
    """Print at once: a benchmark is watched."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Row:
    """One command of the corpus, judged."""

    command: str
    label: str
    effect: str
    reason: str
    seconds: float


def judged(line: bytes) -> Row:
    """A line of the corpus with its verdict, and how long that took."""
    row = orjson.loads(line)
    verdict = effect_of(parse_command(row["command"]), PLACE)
    seconds = []
    for _ in range(3):  # the best: the others were disturbed
        start = time.perf_counter()
        effect_of(parse_command(row["command"]), PLACE)
        seconds.append(time.perf_counter() - start)
    return Row(row["command"], row["label"], verdict.effect, verdict.reason, min(seconds))


def main() -> int:
    """Judge all rows and hold the figures against the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="list what differs from its label")
    options = parser.parse_args()
    if not CORPUS.is_file():
        write(
            f"the corpus of shell commands is not beside the project ({CORPUS}): nothing measured"
        )
        return 0
    parse_command("true")  # the grammar is loaded once
    rows = [judged(line) for line in CORPUS.read_bytes().splitlines()]
    ask = [row for row in rows if row.label == "ask"]
    allow = [row for row in rows if row.label == "allow"]
    false = [row for row in ask if row.effect == "reads"]
    missed = [row for row in allow if row.effect != "reads"]
    times = sorted(row.seconds * 1e6 for row in rows)
    allowed = 1 - len(missed) / max(len(allow), 1)
    write(f"commands                {len(rows):8} ({len(allow)} allow, {len(ask)} ask)")
    write(f"false allows            {len(false):8} (none may be)")
    write(f"allow, only reads       {allowed:8.1%}")
    write(f"one command, median     {statistics.median(times):8.0f} us")
    write(f"one command, 99th perc. {times[len(times) * 99 // 100]:8.0f} us")
    for row in false:
        write(f"FALSE ALLOW {row.command!r}")
    if options.list:
        for row in missed:
            write(f"asks: {row.command!r}: {row.reason}")
    return 0 if rows and not false else 1


if __name__ == "__main__":
    sys.exit(main())
