"""The question on a terminal: a real one, and a real process behind it."""

import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ironcurtain_proxy.model.escalation import Unreachable
from ironcurtain_proxy.review.terminal import TerminalReviewer
from tests.fakes import FakeClock
from tests.program import PATIENCE
from tests.questions import a_question

PROGRAM = Path(__file__).with_name("terminal_program.py")
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.requirement("E-39")


@dataclass
class Screen:
    """The person's side of the terminal."""

    master: int
    said: int
    seen: bytes = b""

    def wait_for(self, text: str) -> str:
        """Read what is shown until a text has been; gives all of it."""
        while text.encode() not in self.seen:
            assert select.select([self.master], [], [], 20)[0], f"not shown: {text}"
            self.seen += os.read(self.master, 4096)
        before, _, self.seen = self.seen.partition(text.encode())
        return before.decode()

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def result(self) -> str:
        """The next line of what the program says came back."""
        line = b""
        while not line.endswith(b"\n"):
            assert select.select([self.said], [], [], 20)[0], "no answer in time"
            got = os.read(self.said, 1)
            assert got, "the program ended"
            line += got
        return line.decode().strip()


@contextmanager
def a_terminal(*questions: str, raw: bool = False, columns: int = 0) -> Iterator[Screen]:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    said, say = os.pipe()
    if raw:
        modes = termios.tcgetattr(slave)
        modes[3] &= ~termios.ICANON
        termios.tcsetattr(slave, termios.TCSANOW, modes)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(slave), str(say), *questions],
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        pass_fds=(slave, say),
        start_new_session=True,
    )
    os.close(slave)
    os.close(say)
    try:
        yield Screen(master, said)
    finally:
        os.close(master)
        os.close(said)
        process.terminate()
        process.wait(PATIENCE)


def test_only_yes_and_always_approve() -> None:
    approved, declined = "Approved(by=Person(), ", "Declined(by=Person(), kind='denied'"
    rest = "question=None, note='', details=()"
    answers = {
        "y\n": f"{approved}reasoning='', remember=None, {rest}",
        " YES \n": approved,
        "a\n": f"{approved}reasoning='', remember=0, {rest}",
        "Always\n": "remember=0",
        **dict.fromkeys(("n\n", "\n", "yess\n", "y\x04\x04", "\x04"), declined),
    }
    with a_terminal(*["60"] * len(answers)) as screen:
        assert screen.result() == "reachable=True"
        for typed, expected in answers.items():
            shown = screen.wait_for("Approve? [y/a/N] ")
            assert "May the agent use files/read_file?" in shown
            assert '"Remember" means: Allow files/read_file read-path within /etc' in shown
            screen.type(typed)
            assert expected in screen.result(), typed


def test_each_kind_that_may_be_remembered_has_an_answer() -> None:
    with a_terminal(*["-60"] * 3) as screen:
        screen.result()
        for typed, expected in (("a", "remember=0"), ("A2", "remember=1"), ("a3", "Declined")):
            shown = screen.wait_for("Approve? [y/a/a2/N] ")
            assert '"Remember" means: Allow files/read_file read-path within /etc' in shown
            assert '"Remember 2" means: Allow files/read_file read-path within /srv' in shown
            screen.type(f"{typed}\n")
            assert expected in screen.result()


def test_what_was_typed_before_the_question_does_not_answer_it() -> None:
    with a_terminal("60", "60") as screen:
        screen.wait_for("n = 0")
        screen.wait_for("[y/a/N] ")
        screen.type("n\ny\ny\n")
        screen.result()
        assert screen.result().startswith("0: Declined")
        screen.wait_for("n = 1")
        screen.wait_for("[y/a/N] ")
        screen.type("n\n")
        assert screen.result().startswith("1: Declined")


def test_questions_are_asked_one_after_the_other() -> None:
    with a_terminal("60", "60") as screen:
        assert "n = 1" not in screen.wait_for("[y/a/N] ")
        screen.type("y\n")
        screen.result()
        assert screen.result().startswith("0: Approved")
        assert "n = 1" in screen.wait_for("[y/a/N] ")
        screen.type("n\n")
        assert screen.result().startswith("1: Declined")


def test_a_question_ends_with_its_deadline_and_one_that_waits_for_its_turn_as_well() -> None:
    with a_terminal("0.4", "0.2") as screen:
        screen.wait_for("[y/a/N] ")
        screen.result()
        results = sorted((screen.result(), screen.result()))
    assert results == [
        f"{number}: Declined(by=Nobody(), kind='expired', reason='', note='', "
        "question=None, details=())"
        for number in (0, 1)
    ]


def test_no_argument_begins_a_line_of_the_terminal() -> None:
    ours = ("May ", "Why ", "Working ", "Arguments,", "  n = ", '"Remember', "      : ")
    widths = [30, 40, 79, 81, 93]
    with a_terminal(*["long"] * len(widths), columns=widths[0]) as screen:
        for columns, following in zip(widths, [*widths[1:], 0], strict=True):
            shown = screen.wait_for("[y/a/N]")
            lines = shown.rpartition(" n\r\n")[2].splitlines()  # after the answer before
            assert all(len(line) <= columns for line in lines)
            assert [line for line in lines[:-1] if line and not line.startswith(ours)] == []
            assert lines[-1] == "Approve? "
            termios.tcsetwinsize(screen.master, (24, following))
            screen.type("n\n")


def test_a_question_that_is_withdrawn_says_so_and_leaves_the_terminal_to_the_next() -> None:
    with a_terminal("cancel", "60") as screen:
        screen.wait_for("no answer is needed any more")
        screen.result()
        assert screen.result() == "0: cancelled"
        screen.wait_for("[y/a/N] ")
        screen.type("y\n")
        assert screen.result().startswith("1: Approved")


def test_a_terminal_that_another_program_reads_key_by_key_is_left_alone() -> None:
    with a_terminal("60", raw=True) as screen:
        screen.type("y")
        assert screen.result() == "reachable=False"
        assert screen.result() == "0: Unreachable(details=())"


@pytest.mark.anyio
@pytest.mark.parametrize("terminal", ["/dev/null", "/does/not/exist", "/tmp"])
async def test_what_is_no_terminal_leads_to_nobody(terminal: str) -> None:
    reviewer = TerminalReviewer(FakeClock(), terminal)
    assert not reviewer.is_reachable()
    assert await reviewer.ask(a_question()) == Unreachable()


@pytest.mark.anyio
async def test_somebody_elses_terminal_is_left_alone() -> None:
    master, slave = pty.openpty()
    try:
        reviewer = TerminalReviewer(FakeClock(), os.ttyname(slave))
        assert not reviewer.is_reachable()
        assert await reviewer.ask(a_question()) == Unreachable()
    finally:
        os.close(master)
        os.close(slave)
