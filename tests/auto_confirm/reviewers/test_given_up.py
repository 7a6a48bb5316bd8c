"""What a session says of a reviewer that it gave up."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import orjson
import pytest

from ironcurtain_proxy.auto_confirm.notice_channels import FileChannel
from ironcurtain_proxy.auto_confirm.notifier import NoticeSender, Notifier, lost_notice
from ironcurtain_proxy.auto_confirm.session_files import (
    FILE_NAME,
    AbandonedReviewer,
    given_up,
    note_given_up,
)
from ironcurtain_proxy.cli import main
from tests.program import PATIENCE, until

pytestmark = pytest.mark.anyio


def test_status_names_what_a_running_session_gave_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("IRONCURTAIN_CONFIG", "MCP_SERVERS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    note_given_up(tmp_path / ".ironcurtain" / "sessions" / "s1", ["architect"])
    assert main(["status"]) == 0
    assert 'session s1: reviewer "architect" was given up' in capsys.readouterr().err
    main(["status", "--json"])
    found = orjson.loads(capsys.readouterr().out)
    assert found["givenUp"] == [{"session": "s1", "reviewer": "architect"}]


def test_what_an_ended_session_gave_up_is_not_said(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; "
        "from ironcurtain_proxy.auto_confirm.session_files import note_given_up; "
        "note_given_up(pathlib.Path(sys.argv[1]), ['architect'])"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "s1"], check=True, timeout=PATIENCE)
    assert (tmp_path / "s1" / FILE_NAME).exists()
    assert list(given_up(tmp_path)) == []
    note_given_up(tmp_path / "s2", ["a", "b"])
    assert list(given_up(tmp_path)) == [AbandonedReviewer("s2", "a"), AbandonedReviewer("s2", "b")]


def test_a_file_that_says_nothing_is_left_alone(tmp_path: Path) -> None:
    for number, content in enumerate([b"", b"[]", b"{}", b"no", b'{"pid": "x"}']):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / FILE_NAME).write_bytes(content)
    assert list(given_up(tmp_path)) == []


async def test_everyone_who_can_be_told_is_told(tmp_path: Path) -> None:
    file = tmp_path / "notices.jsonl"
    notifier = Notifier(channels=[FileChannel(path=file)], transport=NoticeSender(os.environ))
    async with anyio.create_task_group() as tasks:
        await tasks.start(notifier.run)
        notifier.notify(lost_notice("archi\u202etect; rm"))
        await until(lambda: notifier.delivered)
        tasks.cancel_scope.cancel()
    assert orjson.loads(file.read_bytes()) == {
        "type": "reviewer_given_up",
        "reviewer": "archi?tect??rm",
    }
