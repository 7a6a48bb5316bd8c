"""What the page about servers says of the popular ones is what their runs gave."""

import runpy
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.config.servers.recognition import _index as packages

ROOT: Final = Path(__file__).parents[2]
SCRIPTS: Final = ROOT / "scripts" / "packs"
RESULTS: Final = orjson.loads((SCRIPTS / "results.json").read_bytes())
OURS: Final = {"own-shell"}
"""Packs of servers of this project, which have tests of their own."""
STARTS: Final = 40
"""The fewest servers that start in their sandbox, as in the first run of all."""


def test_the_page_says_what_the_runs_gave() -> None:
    made = runpy.run_path(str(SCRIPTS / "table.py"))["section"](RESULTS)
    assert (ROOT / "docs" / "servers.md").read_text().endswith(f"\n\n{made}")


def test_every_pack_was_run_and_every_need_is_of_a_server_that_was() -> None:
    names = {*packages().values()} - OURS
    assert names <= RESULTS.keys()
    needs = orjson.loads((ROOT / "ironcurtain_proxy/config/packs/needs.json").read_bytes())
    assert needs.keys() <= RESULTS.keys()


def test_most_popular_servers_start_in_their_sandbox() -> None:
    started = [name for name, found in RESULTS.items() if found["start"] == "works"]
    assert len(started) >= STARTS
