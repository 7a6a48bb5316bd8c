"""Labelled shell commands: the project's own, and a corpus that may lie beside the project."""

from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.shell.judging import judge_command
from ironcurtain_proxy.shell.parse import parse_command

OWN: Final = Path(__file__).parent / "commands.jsonl"
CORPUS: Final = Path(__file__).resolve().parents[3] / "shared/corpora/shell-commands.jsonl"


FILES: Final = [
    OWN,
    pytest.param(
        CORPUS,
        marks=pytest.mark.skipif(not CORPUS.is_file(), reason="it is not beside the project"),
    ),
]


@pytest.mark.parametrize("file", FILES, ids=["own", "corpus"])
def test_no_labelled_command_is_judged_safe_that_asks_and_most_harmless_ones_pass(
    file: Path,
) -> None:
    rows = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    assert len(rows) >= 60
    found = {row["command"]: judge_command(parse_command(row["command"])).effect for row in rows}
    false = [r["command"] for r in rows if r["label"] == "ask" and found[r["command"]] == "safe"]
    allow = [found[row["command"]] for row in rows if row["label"] == "allow"]
    assert false == []
    assert allow.count("safe") / len(allow) >= 0.85
