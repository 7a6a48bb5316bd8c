"""Very many calls change nothing. The script makes 200,000; here it makes some."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_call_is_recorded_before_it_is_sent_and_the_log_of_all_is_whole() -> None:
    """The server looks each call up in the log; the script checks the order, and verifies."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "bench_many.py", "--calls", "600", "--step", "400"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout.splitlines()[-4:]
    assert (done.returncode, said) == (
        0,
        [
            "sent before their intent was in the log: 0",
            "refused: 0",
            "without an intent before one outcome: 0",
            "audit verify: 0",
        ],
    ), done.stdout + done.stderr
