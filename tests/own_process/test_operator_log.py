"""Few words for the operator, whatever happens how often."""

import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ironcurtain_proxy.downstream import session_log
from ironcurtain_proxy.downstream.session_log import SessionLog
from ironcurtain_proxy.own_process import (
    WINDOW_SECONDS,
    RepeatLimiter,
    configure_logging,
)

LOGS_TO_A_FULL_DEVICE = """
import logging, os, sys
from pathlib import Path
from ironcurtain_proxy.own_process import configure_logging, say

finish = configure_logging(Path("/dev/full"))
for number in range(20):
    logging.getLogger("x").error("call %s is lost", number)
    say("so is this")
finish()
os._exit(7)
"""


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def logger(name: str, handler: logging.Handler) -> logging.Logger:
    made = logging.Logger(name)  # noqa: LOG001  nobody else may have it
    made.addHandler(handler)
    return made


def test_a_line_that_comes_with_every_call_is_said_a_few_times_and_then_counted() -> None:
    out, clock = io.StringIO(), Clock()
    handler = RepeatLimiter(logging.StreamHandler(out), most=3, clock=clock)
    log = logger("calls", handler)
    for number in range(1000):
        log.error("call %s is not recorded", number)
    log.error("something else")
    assert out.getvalue().splitlines() == [
        "call 0 is not recorded",
        "call 1 is not recorded",
        "call 2 is not recorded",
        "something else",
    ]
    clock.seconds = WINDOW_SECONDS + 1
    log.error("call %s is not recorded", 1000)
    assert out.getvalue().splitlines()[4:] == [
        "997 more lines like this one: call 999 is not recorded",
        "call 1000 is not recorded",
    ]


def test_different_things_that_are_said_in_the_same_way_are_all_said() -> None:
    out = io.StringIO()
    log = logger("server", RepeatLimiter(logging.StreamHandler(out), most=1))
    for text in ("one has ended", "two has ended", "one has ended"):
        log.error("%s", text)
    assert out.getvalue().splitlines() == ["one has ended", "two has ended"]


def test_operator_and_servers_share_a_log_that_is_set_aside_when_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_log, "_MOST", 10_000)
    path = tmp_path / "log"
    servers = SessionLog(path)
    finish = configure_logging(path)
    try:
        for number in range(150):
            logging.getLogger("x").error("call %s is lost\x1b[2J", number)
            servers.write("s", f"word {number} {'x' * 100}")
    finally:
        finish()
        logging.basicConfig(force=True)
    kept = (tmp_path / "log.1").read_text() + path.read_text()
    assert len(kept) <= 20_000
    lines = kept.splitlines()
    assert lines[-1].startswith("[s] word 149 ")
    assert lines[-2].endswith(" ironcurtain-proxy call 149 is lost\\x1b[2J")
    half = [line for line in lines if not line.startswith("[s] word") and "is lost" not in line]
    assert half == []


def test_what_was_left_out_is_counted_at_the_end() -> None:
    out = io.StringIO()
    handler = RepeatLimiter(logging.StreamHandler(out), most=1)
    log = logger("calls", handler)
    for number in range(5):
        log.error("call %s is not recorded", number)
    handler.say_what_was_left_out()
    assert "4 more lines like this one: call 4 is not recorded" in out.getvalue()
    handler.say_what_was_left_out()
    assert out.getvalue().count("more lines") == 1


def test_kinds_of_lines_are_bounded() -> None:
    out = io.StringIO()
    handler = RepeatLimiter(logging.StreamHandler(out), most=1)
    log = logger("calls", handler)
    for number in range(2000):
        log.error(f"kind {number} %s", "x")  # noqa: G004  each is a kind of its own
    assert len(handler._kinds) <= 500
    assert len(out.getvalue().splitlines()) == 2000


def test_lines_that_cannot_be_written_cost_neither_a_traceback_nor_the_exit_code(
    tmp_path: Path,
) -> None:
    errors = tmp_path / "errors"
    for target in ("/dev/full", str(errors)):
        with open(target, "wb") as stderr:  # noqa: PTH123  a device
            done = subprocess.run(
                [sys.executable, "-c", LOGS_TO_A_FULL_DEVICE],
                check=False,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
        assert done.returncode == 7
    assert "Traceback" not in errors.read_text(encoding="utf-8")
    assert "Logging error" not in errors.read_text(encoding="utf-8")
