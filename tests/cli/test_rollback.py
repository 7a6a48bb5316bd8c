"""`rollback`, as a person or a program would use it."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.snapshots.snapshot import finish, take

pytestmark = pytest.mark.requirement("B-62")

Run = Callable[..., tuple[int, str, str]]
NOW = datetime(2026, 2, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    for name in ("IRONCURTAIN_CONFIG", "MCP_SERVERS_CONFIG", "ESCALATION_DIR", "AUDIT_LOG_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return directory


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(("rollback", *arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def changed(home: Path, name: str = "3f2a-1", file: str = "f") -> Path:
    """A file that a call has changed."""
    path = home.resolve() / file
    path.write_text("before")
    snapshots = home / ".ironcurtain" / "snapshots"
    snapshot = take(name, [RealPath.from_text(str(path))], None, snapshots, NOW)
    path.write_text("after")
    finish(snapshot)
    return path


def test_the_beginning_of_an_id_puts_back(home: Path, run: Run) -> None:
    path = changed(home)
    assert run("3f2a") == (0, f"replaced  {path}\n", "")
    assert path.read_text() == "before"
    assert run("3f2a") == (0, "nothing to do: all is as it was before the call\n", "")


def test_a_dry_run_only_says_it(home: Path, run: Run) -> None:
    path = changed(home)
    assert run("3f2a-1", "--dry-run") == (0, f"would be replaced  {path}\n", "")
    assert path.read_text() == "after"


def test_a_program_can_read_it(home: Path, run: Run) -> None:
    path = changed(home)
    code, out, _ = run("3f2a-1", "--json")
    assert code == 0
    assert orjson.loads(out) == {
        "id": "3f2a-1",
        "dryRun": False,
        "changes": [{"what": str(path), "kind": "replaced"}],
        "conflicts": [],
        "kept": [],
    }


def test_later_work_is_refused_and_force_goes_over_it(home: Path, run: Run) -> None:
    path = changed(home)
    path.write_text("later work")
    code, out, err = run("3f2a")
    assert (code, out) == (1, "")
    assert "changed since the call; nothing was put back" in err
    assert f"  {path}\n" in err
    assert "--force" in err
    code, out, _ = run("3f2a", "--json")
    assert (code, orjson.loads(out)["conflicts"]) == (1, [str(path)])
    code, _, err = run("3f2a", "--dry-run")
    assert code == 0
    assert "would be refused without --force" in err
    assert path.read_text() == "later work"
    assert run("3f2a", "--force")[0] == 0
    assert path.read_text() == "before"


@pytest.mark.parametrize("name", ["nothing", "3f", "../home"])
def test_an_id_that_is_none_or_several_is_said(home: Path, run: Run, name: str) -> None:
    changed(home)
    changed(home, "3f2b", "g")
    code, out, err = run(name)
    assert (code, out) == (1, "")
    assert err.startswith(f"ironcurtain-proxy: {name!r} is ")


def test_where_nothing_is_kept_that_is_said(run: Run) -> None:
    assert run("--list") == (0, "nothing can be put back: no point and no snapshot is kept\n", "")
    code, out, _ = run("--list", "--json")
    assert (code, orjson.loads(out)) == (0, {"calls": [], "dropped": [], "notHeld": []})
    assert run("3f2a") == (
        1,
        "",
        (
            "ironcurtain-proxy: '3f2a' is no call that changed anything that is held: "
            "see rollback --list\n"
        ),
    )


def test_what_is_kept_is_listed(home: Path, run: Run) -> None:
    path = changed(home)
    unfinished = home.resolve() / "line\nbreak"
    take("4", [RealPath.from_text(str(unfinished))], None, home / ".ironcurtain/snapshots", NOW)
    lines = run("--list")[1].splitlines()
    assert f"3f2a-1  2026-02-21 12:00:00  {path}" in lines
    assert f"4  2026-02-21 12:00:00  {home.resolve()}/line\\nbreak, what the call left" in (
        "\n".join(lines)
    )
    found = {one["id"]: one for one in orjson.loads(run("--list", "--json")[1])["calls"]}
    assert found["3f2a-1"]["places"] == [str(path)]
    assert (found["3f2a-1"]["finished"], found["4"]["finished"]) == (True, False)


def test_keys_are_never_put_back(home: Path, run: Run) -> None:
    (home / ".ssh").mkdir()
    path = changed(home, file=".ssh/authorized_keys")
    code, _, err = run("3f2a", "--force")
    assert code == 1
    assert "is protected" in err
    assert path.read_text() == "after"


@pytest.mark.parametrize("arguments", [["--list", "x"], ["x", "--config", "/nowhere.json"]])
def test_what_cannot_be_meant_is_a_usage_error(home: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ironcurtain_proxy", "rollback", *arguments],
        env={"HOME": str(home)},
        capture_output=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 2


def test_what_is_no_snapshot_leads_to_the_list(home: Path, run: Run) -> None:
    changed(home)
    for wrong in ("zz", ""):
        code, out, err = run(wrong)
        assert (code, out) == (1, "")
        assert err.endswith("is no call that changed anything that is held: see rollback --list\n")


def test_without_an_id_the_list_is_shown_and_nothing_is_put_back(home: Path, run: Run) -> None:
    path = changed(home)
    assert run() == run("--list")
    assert "3f2a-1" in run()[1]
    assert path.read_text() == "after"


def test_an_id_in_capitals_is_the_same(home: Path, run: Run) -> None:
    changed(home)
    assert run("3F2A", "--dry-run")[0] == 0
