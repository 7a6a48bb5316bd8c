"""`pending`, `approve` and `deny` against a mailbox that waits."""

import argparse
import os
from pathlib import Path
from typing import cast

import anyio.to_thread
import orjson
import pytest

from ironcurtain_proxy.cli import Subparsers, approve, deny, pending
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.escalation import Approved, Declined
from ironcurtain_proxy.session.mailboxes import Mailboxes
from tests.review.box import CLOCK, a_box, escalation, within

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-6", "C-31")]


@pytest.fixture
def box_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ESCALATION_DIR", raising=False)
    return tmp_path / ".ironcurtain" / "sessions" / "s1"


async def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    for module in (pending, approve, deny):
        module.add_parser(cast("Subparsers", commands))
    options = parser.parse_args(words)
    run = {"pending": pending.run, "approve": approve.run, "deny": deny.run}[words[0]]
    return await anyio.to_thread.run_sync(run, options)


async def test_a_session_is_found_shown_and_answered_by_number(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_box(box_path) as box:
        asked = escalation(candidates=(within("/etc"),))
        async with box.asked(asked):
            assert await command("pending") == 0
            assert "[1] files/read_file path=/etc/hosts" in capsys.readouterr().out
            assert await command("approve", "1", "--remember") == 0
            assert f"approved {asked.id[:8]}" in capsys.readouterr().out
        assert box.rulings[asked.id] == Approved(by="human", remember=0)


async def test_a_named_directory_is_answered_by_the_beginning_of_an_id(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        async with box.asked(asked):
            words = ("deny", asked.id[:6], "--note", "no", "--dir", str(box.path))
            assert await command(*words) == 0
        assert box.rulings[asked.id] == Declined(by="human", kind="denied", note="no")


async def test_the_environments_directory_is_looked_into(
    box_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESCALATION_DIR", str(tmp_path / "box"))
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        async with box.asked(asked):
            assert await command("approve", asked.id) == 0


async def test_a_number_never_moves_to_another_request(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was shown as 1 has ended: 1 must not approve what has moved up."""
    async with a_box(box_path) as box:
        first, second = escalation(), escalation()
        async with box.asked(second):
            async with box.asked(first):
                first_id = await _first_shown(capsys)
                assert await command("approve", first_id) == 0
            assert await command("approve", "1") == 1
            assert "no longer pending" in capsys.readouterr().err
            assert box.rulings.keys() == {first.id} or box.rulings.keys() == {second.id}
            assert await command("deny", "all") == 0


async def _first_shown(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    await command("pending", "--json")
    listed = orjson.loads(capsys.readouterr().out)
    assert [one["number"] for one in listed] == [1, 2]
    return str(listed[0]["id"])


async def test_all_approves_together_only_what_may_be(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-28."""
    async with a_box(box_path) as box:
        harmless, deletes = escalation(), escalation(tool="delete_file")
        async with box.asked(harmless), box.asked(deletes):
            lines = box.request(deletes).read_text().replace("read-path", "delete-path")
            box.request(deletes).write_text(lines)
            assert await command("approve", "all") == 0
            assert "left out of all" in capsys.readouterr().err
            assert await command("approve", "all") == 1
            assert await command("deny", "all") == 0
        assert isinstance(box.rulings[harmless.id], Approved)
        assert isinstance(box.rulings[deletes.id], Declined)


async def test_what_is_not_pending_is_an_error(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command("approve", "7db5443e") == 1
    assert await command("approve", "1") == 1
    assert await command("approve", "ab") == 1
    assert await command("deny", "all") == 1
    assert await command("pending") == 0
    assert capsys.readouterr().out == "nothing is pending\n"


async def test_what_cannot_be_remembered_is_not_approved_in_its_place(box_path: Path) -> None:
    async with a_box(box_path) as box:
        asked = escalation()
        async with box.asked(asked):
            assert await command("approve", asked.id, "--remember") == 1
            assert asked.id not in box.rulings
            assert await command("approve", asked.id) == 0


async def test_a_named_directory_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such directory"):
        await command("pending", "--dir", str(tmp_path / "typo"))


def _descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_old_sessions_cost_nothing_and_a_new_request_in_one_is_found(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    for number in range(300):
        (sessions / str(number)).mkdir(parents=True)
        os.utime(sessions / str(number), (1, 1))
    mailboxes = Mailboxes([], sessions)
    descriptors = _descriptors()
    for _ in range(2):
        assert mailboxes.pending(CLOCK.now()) == []
    assert _descriptors() <= descriptors
    async with a_box(sessions / "7") as box:
        asked = escalation()
        async with box.asked(asked):
            assert [one.id for one in mailboxes.pending(CLOCK.now())] == [asked.id]
            box.answer(asked, {"decision": "denied"})
