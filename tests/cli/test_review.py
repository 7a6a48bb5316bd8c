"""`review` in a process of its own, without and with a terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from ironcurtain_proxy.model.decision import HUMAN
from ironcurtain_proxy.model.escalation import Approved, Declined
from tests.mailbox.mailbox_fixture import a_box, escalation
from tests.program import until

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-6", "C-31")]

PROGRAM = """
import sys
from ironcurtain_proxy.cli import parser_of, review
from ironcurtain_proxy.errors import IronCurtainError
options = parser_of(["review"]).parse_args(["review", *sys.argv[1:]])
try:
    sys.exit(review.run(options))
except IronCurtainError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ESCALATION_DIR", raising=False)
    return tmp_path


@asynccontextmanager
async def reviewing(*words: str) -> AsyncIterator[anyio.abc.Process]:
    command = [sys.executable, "-c", PROGRAM, *words]
    process = await anyio.open_process(command, stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.aclose()


async def test_lines_answer_a_session_that_began_after_the_review(home: Path) -> None:
    """R-34: the review holds the lock of all sessions, so the proxy finds that someone listens."""
    sessions = home / ".ironcurtain" / "sessions"
    async with (
        a_box(sessions / "s1", assume_listener=False) as box,
        reviewing("--plain") as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        await until(box.mailbox.is_reachable)
        lines = BufferedByteReceiveStream(process.stdout)
        approved, denied = escalation(), escalation()
        async with box.asked(approved):
            assert (await lines.receive_until(b"\n", 1000)).startswith(b"[1] files/read_file")
            await process.stdin.send(b"/approve 1\n")
        async with box.asked(denied):
            while not (await lines.receive_until(b"\n", 1000)).startswith(b"[2] "):
                pass
            await process.stdin.send(b"/deny 2 not now\n/quit\n")
        assert await process.wait() == 0
        assert isinstance(box.rulings[approved.id], Approved)
        assert box.rulings[denied.id] == Declined(by=HUMAN, kind="denied", note="not now")
        assert not box.mailbox.is_reachable()
        assert [entry.name for entry in sessions.iterdir()] == ["s1"]


async def test_the_end_of_input_ends_it(home: Path) -> None:
    async with reviewing("--plain", "--dir", str(home / "new")) as process:
        assert process.stdin is not None
        await process.stdin.aclose()
        assert await process.wait() == 0


async def test_without_a_terminal_the_screen_names_the_plain_form(home: Path) -> None:
    async with reviewing() as process:
        assert await process.wait() == 1
        assert process.stderr is not None
        assert b"review --plain" in await process.stderr.receive()


async def test_a_killed_review_listens_no_longer(home: Path) -> None:
    box_path = home / ".ironcurtain" / "sessions" / "s1"
    async with a_box(box_path, assume_listener=False) as box, reviewing("--plain") as process:
        await until(box.mailbox.is_reachable)
        os.kill(process.pid, 9)
        await until(lambda: not box.mailbox.is_reachable())


async def test_no_call_waits_for_a_review_whose_terminal_is_gone(home: Path) -> None:
    """A terminal that hangs up ends its programs, but not one that ignores it (`nohup`)."""
    sessions = home / ".ironcurtain" / "sessions"
    ours, theirs = pty.openpty()
    async with a_box(sessions / "s1", assume_listener=False) as box:
        process = await anyio.open_process(
            [sys.executable, "-c", PROGRAM],
            stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        try:
            await until(box.mailbox.is_reachable)
            os.close(ours)
            await process.wait()
            await until(lambda: not box.mailbox.is_reachable())
        finally:
            if process.returncode is None:
                process.kill()
