"""Commands that answer JSON lines answer each line, whatever stands in it."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

LINES = b'{"command": "ls"}\n[1]\n\nno JSON\n{"command": 3}\n'
# A command that only reads needs no approval, whatever was approved.
PAIRS = b'{"approved": "npm publish", "then": "ls"}\n[1]\n{"approved": 3, "then": "ls"}\n{}\n'


@pytest.mark.parametrize(
    ("command", "given", "key"),
    [(["shell"], LINES, "effect"), (["grants", "try"], PAIRS, "covered")],
)
def test_a_line_that_cannot_be_read_gets_an_answer_and_counts_in_the_exit_status(
    command: list[str], given: bytes, key: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ironcurtain_proxy", *command, "--jsonl"],
        input=given,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        check=False,
        capture_output=True,
    )
    answers = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 4
    assert all(key in answer for answer in answers)
    assert [answer[key] for answer in answers[1:]] == [answers[1][key]] * 3
    assert answers[0][key] in {"reads", True}
    assert (done.returncode, done.stderr) == (1, b"")
