"""Few words for the operator, whatever happens how often."""

import io
import logging
import os
import subprocess
import sys
from pathlib import Path

from ironcurtain_proxy.wiring.operator_log import WINDOW_SECONDS, Sparing

LOGS_TO_A_FULL_DEVICE = """
import logging, os, sys
from pathlib import Path
from ironcurtain_proxy.wiring.operator_log import configure_logging, say

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
    handler = Sparing(logging.StreamHandler(out), most=3, clock=clock)
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


def test_what_was_left_out_is_counted_at_the_end() -> None:
    out = io.StringIO()
    handler = Sparing(logging.StreamHandler(out), most=1)
    log = logger("calls", handler)
    for number in range(5):
        log.error("call %s is not recorded", number)
    handler.say_what_was_left_out()
    assert "4 more lines like this one: call 4 is not recorded" in out.getvalue()
    handler.say_what_was_left_out()
    assert out.getvalue().count("more lines") == 1


def test_kinds_of_lines_are_bounded() -> None:
    out = io.StringIO()
    handler = Sparing(logging.StreamHandler(out), most=1)
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
