"""`rollback`, as a person or a program would use it."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.cli.rollback import lines as rows
from ironcurtain_proxy.model.reply import NotHeld
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.snapshots.keeper import Keeper, Limits
from ironcurtain_proxy.snapshots.opening import claim
from ironcurtain_proxy.snapshots.rewinding import kept
from tests import program
from tests.program import PROXY

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


@pytest.fixture
def top(home: Path, tmp_path: Path) -> Path:
    """A workspace in which two calls wrote to a file each, and a third to the first file."""
    top = tmp_path / "work"
    top.mkdir()
    for name in ("a", "b"):
        (top / name).write_text("before")
    workspace = RealPath.from_text(str(top))
    claimed = claim(home / ".ironcurtain" / "timeline", workspace)
    keeper = Keeper(claimed.directory, workspace, Limits(), session="s1", now=lambda: NOW)
    for call, name in (("aa01", "a"), ("bb02", "b"), ("cc03", "a")):
        point = keeper.mark(call, "shell", "run")
        assert not isinstance(point, NotHeld)
        (top / name).write_text(call)
        keeper.end_call(point)
    keeper.close()
    claimed.release()
    return top


def test_a_call_is_taken_back_by_the_beginning_of_its_id(top: Path, run: Run) -> None:
    code, out, _ = run("bb")
    assert (code, out.splitlines()[0]) == (0, "replaced  b")
    assert ((top / "a").read_text(), (top / "b").read_text()) == ("cc03", "before")


def test_a_rollback_is_taken_back_as_it_says(top: Path, run: Run) -> None:
    last = run("BB02")[1].splitlines()[-1]
    assert last.startswith("to take this back: ironcurtain-proxy rollback ")
    assert run(last.split()[-1])[0] == 0
    assert (top / "b").read_text() == "bb02"


def test_what_a_later_call_wrote_to_is_refused_and_named(top: Path, run: Run) -> None:
    code, _, err = run("aa01")
    assert code == 1
    assert "a was touched later" in err
    assert (top / "a").read_text() == "cc03"
    code, out, _ = run("aa01", "--json")
    assert (code, orjson.loads(out)["conflicts"]) == (1, ["a was touched later, by cc03"])
    assert run("aa01", "--force")[0] == 0
    assert (top / "a").read_text() == "before"


def test_a_rewind_shows_first_what_else_it_takes_back(top: Path, run: Run) -> None:
    (top / "new").write_text("by a person")
    code, out, _ = run("--to", "bb02", "--dry-run")
    assert code == 0
    assert "would be replaced  a" in out
    assert "would also be taken back  cc03" in out
    assert "would also be taken back, though no known call did it  created new" in out
    assert (top / "new").exists()
    code, out, _ = run("--to", "bb02")
    lines = out.splitlines()
    assert (
        lines.index("replaced  a")
        > [index for index, line in enumerate(lines) if line.startswith("is also taken back")][-1]
    )
    assert ((top / "a").read_text(), (top / "b").read_text()) == ("aa01", "before")
    assert not (top / "new").exists()


def test_a_program_reads_what_a_rewind_did(top: Path, run: Run) -> None:
    del top
    code, out, _ = run("--to", "aa01", "--json")
    told = orjson.loads(out)
    assert code == 0
    assert told["alsoTakenBack"] == ["bb02", "cc03"]
    assert told["changes"] == [{"what": "a", "kind": "replaced"}, {"what": "b", "kind": "replaced"}]
    assert orjson.loads(run("--list", "--json")[1])["calls"][-1]["id"] == told["rollback"]


def test_each_call_is_listed_with_its_tool_session_and_changes(top: Path, run: Run) -> None:
    lines = run("--list")[1].splitlines()
    assert lines[0] == "aa01  2026-02-21 12:00:00  shell/run  session s1  changed a"
    first = orjson.loads(run("--list", "--json")[1])["calls"][0]
    assert first == {
        "id": "aa01",
        "kind": "call",
        "at": NOW.isoformat(),
        "server": "shell",
        "tool": "run",
        "session": "s1",
        "workspace": str(top),
        "finished": True,
        "changes": [{"path": "a", "kind": "changed"}],
        "notLookedInto": [],
    }


def test_the_list_says_where_a_link_leads_what_can_run_and_where_a_name_ends(
    top: Path, home: Path, run: Run
) -> None:
    workspace = RealPath.from_text(str(top))
    claimed = claim(home / ".ironcurtain" / "timeline", workspace)
    keeper = Keeper(claimed.directory, workspace, Limits(), session="s2", now=lambda: NOW)
    point = keeper.mark("dd04", "shell", "run")
    assert not isinstance(point, NotHeld)
    (top / "link").symlink_to("/etc/passwd")
    (top / "a").chmod(0o755)
    (top / "x, created y").write_text("")
    keeper.end_call(point)
    keeper.close()
    claimed.release()
    said = run("--list")[1].splitlines()[-1]
    changes = orjson.loads(run("--list", "--json")[1])["calls"][-1]["changes"]
    assert said.endswith(
        'mode a (mode 755), created link (target /etc/passwd), created "x, created y"'
    )
    assert [one.get("target", one.get("mode")) for one in changes] == ["755", "/etc/passwd", None]


def test_a_row_of_the_list_fits_its_line_and_names_as_many_changes_as_it_can(
    top: Path, home: Path
) -> None:
    workspace = RealPath.from_text(str(top))
    claimed = claim(home / ".ironcurtain" / "timeline", workspace)
    keeper = Keeper(claimed.directory, workspace, Limits(), session="s" * 40, now=lambda: NOW)
    call = "0198c1f2-3344-7000-8000-000000000001"
    for server, names in (("shell", "mnopqrs"), ("server" * 9, ["d" * 100 + "/end.py"])):
        point = keeper.mark(call, server, "run_command")
        assert not isinstance(point, NotHeld)
        for name in names:
            (top / name).parent.mkdir(exist_ok=True)
            (top / name).write_text("x")
        keeper.end_call(point)
        call = "0198c1f2-9944-7000-8000-000000000002"
    keeper.close()
    claimed.release()
    timelines = kept(home / ".ironcurtain" / "timeline")
    several, long = list(rows(timelines, 100))[-2:]
    assert several == (
        "0198c1f2-334  2026-02-21 12:00:00  shell/run_command  "
        "created m, created n and 5 more (--json)"
    )
    assert long.startswith("0198c1f2-994  2026-02-21 12:00:00  serverserver")
    assert long.endswith("dd and 1 more (--json)")
    assert "…ddd" in long
    wide = list(rows(timelines, 400))[-2]
    assert wide.endswith("session ssssssssssss…  " + ", ".join(f"created {c}" for c in "mnopqrs"))
    for width in (100, 160):
        assert [len(one) for one in rows(timelines, width) if len(one) > width + 10] == []


def test_a_point_that_is_none_or_several_is_said(top: Path, run: Run) -> None:
    del top
    assert run("--to", "zz")[2].endswith(
        "'zz' is no call of the timeline: `ironcurtain-proxy rollback --list` shows the calls\n"
    )
    assert run("--to", "")[0] == 1
    assert run("zz")[0] == 1


def test_keys_are_never_put_back(home: Path, run: Run) -> None:
    key, other = home / ".ssh/authorized_keys", home / "other"
    key.parent.mkdir()
    for path in (key, other):
        path.write_text("before")
    workspace = RealPath.from_text(str(home))
    claimed = claim(home / ".ironcurtain" / "timeline", workspace)
    keeper = Keeper(claimed.directory, workspace, Limits(), session="s1", now=lambda: NOW)
    point = keeper.mark("aa01", "shell", "run")
    assert not isinstance(point, NotHeld)
    for path in (key, other):
        path.write_text("after")
    keeper.end_call(point)
    keeper.close()
    claimed.release()
    assert run("--to", "aa01", "--force")[0] == 0
    assert (key.read_text(), other.read_text()) == ("after", "before")


def test_where_nothing_is_kept_that_is_said(run: Run) -> None:
    assert run("--list") == (0, "nothing can be put back: no point is kept\n", "")
    code, out, _ = run("--list", "--json")
    assert (code, orjson.loads(out)) == (0, {"calls": [], "dropped": [], "notHeld": []})
    said = (
        "ironcurtain-proxy: '3f2a' is no call of the timeline: "
        "`ironcurtain-proxy rollback --list` shows the calls\n"
    )
    assert run("3f2a") == (1, "", said)


def test_without_an_id_the_list_is_shown_and_nothing_is_put_back(top: Path, run: Run) -> None:
    assert run() == run("--list")
    assert "aa01" in run()[1]
    assert (top / "b").read_text() == "bb02"


@pytest.mark.parametrize("arguments", [["--list", "x"], ["x", "--config", "/nowhere.json"]])
def test_what_cannot_be_meant_is_a_usage_error(home: Path, arguments: list[str]) -> None:
    done = program.run([*PROXY, "rollback", *arguments], {"HOME": str(home)})
    assert done.returncode == 2


def test_an_interrupted_rollback_says_how_it_goes_on(
    top: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_question: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("ironcurtain_proxy.cli.rollback.is_confirmed", stopped)
    code, _, err = run("--to", "bb02")
    assert (code, (top / "a").read_text()) == (130, "cc03")
    assert "stopped: run it again" in err
