"""The benchmark of the proxy, run once over a few calls: its figures are not judged here."""

import subprocess
import sys
from pathlib import Path

import orjson

ROOT = Path(__file__).parents[2]


def test_a_round_of_the_benchmark_gives_every_figure_of_every_way_to_the_server() -> None:
    script = str(ROOT / "scripts" / "bench.py")
    bench = [script, "proxy", "--rounds", "1", "--calls", "3", "--json"]
    done = subprocess.run([sys.executable, *bench], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = orjson.loads(done.stdout)
    assert list(figures) == ["direct", "byte relay", "proxy"]
    for ways in figures.values():
        assert all(ways.values()), figures
        assert min(ways["call_ms"] + ways["flight_per_s"] + ways["mib10_ms"]) > 0
