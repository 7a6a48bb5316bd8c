"""Windows that the operator opens, and what an agent cannot do about them."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ironcurtain_proxy.auto_confirm.session_files import OpenWindows, Windows
from tests import program
from tests.program import PROXY

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.requirement("B-30", "B-31")
def test_a_window_is_open_until_its_end_and_no_longer(tmp_path: Path) -> None:
    windows = Windows(tmp_path / "windows")
    assert windows.read(NOW) == OpenWindows()
    windows.open("testing", NOW + timedelta(minutes=30))
    assert windows.read(NOW) == OpenWindows(testing=True)
    assert windows.read(NOW + timedelta(minutes=30)) == OpenWindows()
    windows.open("deployment", NOW + timedelta(hours=1))
    assert windows.read(NOW).deployment
    assert windows.close("deployment")
    assert not windows.close("deployment")
    assert windows.read(NOW) == OpenWindows(testing=True)


@pytest.mark.parametrize("content", ["", "soon", "2026-01-01T13:00:00", "\udcff", "9" * 5000])
def test_a_file_that_cannot_be_understood_approves_nothing_and_holds(
    tmp_path: Path, content: str
) -> None:
    for name in ("testing", "deployment"):
        (tmp_path / name).write_text(content, errors="surrogateescape")
    assert Windows(tmp_path).read(NOW) == OpenWindows(testing=False, deployment=True)


def test_whoever_opens_a_window_reads_that_the_engine_is_off(tmp_path: Path) -> None:
    state, words = tmp_path / ".ironcurtain", [*PROXY, "window", "testing", "open"]
    environ = {**os.environ, "HOME": str(tmp_path)}
    assert "engine is off" in program.run(words, environ, tmp_path).stdout
    state.joinpath("config.json").write_text('{"autoConfirm": {"enabled": true}}')
    assert "engine is off" not in program.run(words, environ, tmp_path).stdout
