"""The real Claude Code, driven by a scripted model: what its hooks decide is what it does."""

import subprocess
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.hooks.installing import install, place_in
from tests.hooks.hooked import CLAUDE, HookedHome
from tests.hooks.scripted_model import serving
from tests.program import wait_until

pytestmark = [
    pytest.mark.skipif(not CLAUDE.exists(), reason="Claude Code is not installed: npm ci"),
]


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, (out, err)
    return out


@pytest.fixture
def home(tmp_path: Path) -> HookedHome:
    hooked = HookedHome(tmp_path)
    install(place_in("claude", hooked.home, hooked.state))
    (hooked.workspace / "notes.txt").write_text("old\n")
    (hooked.home / ".ssh").mkdir()
    (hooked.home / ".ssh/id_rsa").write_text("a secret key")
    return hooked


def test_what_is_allowed_runs_and_comes_back_and_what_is_denied_or_asked_does_not_run(
    home: HookedHome,
) -> None:
    notes, new = home.workspace / "notes.txt", home.workspace / "new.txt"
    calls = [
        ("Bash", {"command": "cat notes.txt"}),
        ("Read", {"file_path": str(notes)}),
        ("Edit", {"file_path": str(notes), "old_string": "old", "new_string": "new"}),
        ("Write", {"file_path": str(new), "content": "x"}),
        ("Bash", {"command": "cat ~/.ssh/id_rsa"}),
        ("Write", {"file_path": str(home.workspace / ".claude/settings.json"), "content": "{}"}),
        ("Bash", {"command": "touch outside && git push"}),
    ]
    with serving([(name, dict(given)) for name, given in calls]) as model:
        assert "done" in finished(home.run_claude(model, "--permission-mode", "bypassPermissions"))
    failed = [is_error for is_error, _ in model.results]
    assert failed == [False, False, False, False, True, True, True]
    assert "a secret key" not in str(model.results)
    assert "Access to protected path is forbidden" in model.results[5][1]
    # In this mode the client would open no dialog for what it calls sensitive itself.
    assert "The approval policy dangerous asks before calls that may do harm" in model.results[6][1]
    assert not (home.workspace / "outside").exists()
    assert notes.read_text() == "new\n"
    told = [(one["hookTool"], one["decidedBy"], one["result"]) for one in home.outcomes()]
    ended = [(tool, by, result["status"]) for tool, by, result in told if isinstance(result, dict)]
    assert sorted(ended) == sorted(
        [
            ("Bash", "kernel", "success"),
            ("Read", "kernel", "success"),
            ("Edit", "kernel", "success"),
            ("Write", "kernel", "success"),
            ("Bash", "kernel", "denied"),
            ("Write", "kernel", "denied"),
            ("Bash", "kernel", "denied"),
        ]
    )
    # The prompt was the user's word while the session went on; its kernel ended with it.
    doors = home.state / "doors"
    wait_until(lambda: [one.name for one in doors.iterdir()] == ["claude.fired"])
    edited = next(one for one in home.outcomes() if one["hookTool"] == "Edit")
    listed = home.command("rollback", "--list").stdout
    assert "changed notes.txt" in listed
    assert "created new.txt" in listed
    undone = home.command("rollback", str(edited["requestId"]))
    assert undone.returncode == 0, undone.stderr
    assert notes.read_text() == "old\n"
    assert new.read_text() == "x"


def test_the_user_s_own_rules_and_modes_hold_where_the_policy_has_no_objection(
    home: HookedHome,
) -> None:
    file = home.home / ".claude/settings.json"
    settings = orjson.loads(file.read_bytes())
    settings["permissions"] = {"deny": ["Bash(ls:*)"]}
    file.write_bytes(orjson.dumps(settings))
    notes = str(home.workspace / "notes.txt")
    calls = [("Bash", {"command": "ls"}), ("Write", {"file_path": notes, "content": "x"})]
    with serving([(name, dict(one)) for name, one in calls]) as model:
        finished(home.run_claude(model, "--permission-mode", "default"))
    assert [is_error for is_error, _ in model.results] == [True, True]
    assert Path(notes).read_text() == "old\n"


def test_a_running_session_obeys_no_file_that_switches_its_hooks_off(home: HookedHome) -> None:
    own, fired = home.workspace / ".claude", home.state / "doors/claude.fired"
    own.mkdir()
    (own / "settings.json").write_text("{}")
    outside: list[str] = [str(home.home / f"outside{number}") for number in range(3)]

    def change(name: str, text: str) -> None:
        seen = fired.stat().st_size
        (own / name).write_text(text)
        wait_until(lambda: fired.stat().st_size > seen)

    with serving([("Write", {"file_path": one, "content": "x"}) for one in outside]) as model:
        model.before[1] = lambda: change("settings.json", '{"env": {"LD_DEBUG": "help"}}')
        model.before[2] = lambda: change("settings.local.json", '{"disableAllHooks": true}')
        finished(home.run_claude(model, "--permission-mode", "bypassPermissions"))
    assert [is_error for is_error, _ in model.results] == [True] * 3
    assert [one for one in outside if Path(one).exists()] == []
    assert len(home.outcomes()) == 3
