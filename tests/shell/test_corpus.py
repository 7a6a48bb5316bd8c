"""The labelled corpus of shell commands that lies beside the project."""

from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.shell.judging import judge_command
from ironcurtain_proxy.shell.parse import parse_command

CORPUS: Final = Path(__file__).resolve().parents[3] / "shared/corpora/shell-commands.jsonl"


@pytest.mark.skipif(not CORPUS.is_file(), reason="the corpus is not beside the project")
def test_no_labelled_command_is_judged_safe_that_asks_and_most_harmless_ones_pass() -> None:
    rows = [orjson.loads(line) for line in CORPUS.read_bytes().splitlines()]
    found = {row["command"]: judge_command(parse_command(row["command"])).effect for row in rows}
    false = [r["command"] for r in rows if r["label"] == "ask" and found[r["command"]] == "safe"]
    allow = [found[row["command"]] for row in rows if row["label"] == "allow"]
    assert false == []
    assert allow.count("safe") / len(allow) >= 0.85
