"""What is said of hooks that do not work, and what the proxy for servers refuses meanwhile."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks import health
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.events import HookClient
from ironcurtain_proxy.hooks.health import HookWatch, accept, health_of
from ironcurtain_proxy.hooks.installing import install, place_for, place_in, remove
from ironcurtain_proxy.hooks.launching import INTERPRETER, hook_words, note_event
from ironcurtain_proxy.hooks.places import kept_file
from ironcurtain_proxy.mailbox.mailboxes import start_of
from tests.hooks.hooked import CODEX, NODE, HookedHome, decision_in, installed_at


def test_a_project_that_replaces_the_shell_prefix_is_told(tmp_path: Path) -> None:
    state, project = tmp_path / ".ironcurtain", tmp_path / "project"
    install(place_in("claude", tmp_path, state))
    assert "its commands run in a sandbox where there is one" in str(
        health_of("claude", tmp_path, state, project)
    )
    (project / ".claude").mkdir(parents=True)
    file = project / ".claude/settings.json"
    file.write_text('{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/tmp/theirs"}}')
    (alarm,) = health_of("claude", tmp_path, state, project).alarms
    assert alarm == f"{file} REPLACES OUR SHELL PREFIX in this project"


def test_a_client_is_described_by_what_is_there(tmp_path: Path) -> None:
    state = tmp_path / ".ironcurtain"
    assert health_of("gemini", tmp_path, state, tmp_path).alarms == ()
    install(place_in("gemini", tmp_path, state))
    found = health_of("gemini", tmp_path, state, tmp_path)
    assert (found.state, found.starts, found.events, found.alarms) == ("installed", True, 0, ())
    assert "installed, the client has not called them yet" in str(found)
    (state / "doors").mkdir()
    for _ in range(3):
        note_event(state, "gemini")
    found = health_of("gemini", tmp_path, state, tmp_path)
    assert (found.events, found.last is not None) == (3, True)
    assert "installed, called 3 times, last 2" in str(found)
    shutil.move(tmp_path / ".gemini/settings.json", tmp_path / "old")
    document = orjson.loads((tmp_path / "old").read_bytes())
    document["hooks"]["BeforeTool"].insert(0, {"hooks": [{"type": "command", "command": "x"}]})
    (tmp_path / ".gemini/settings.json").write_bytes(orjson.dumps(document))
    assert "incomplete" in health_of("gemini", tmp_path, state, tmp_path).alarms[0]


@pytest.mark.parametrize("client", ["claude", "codex", "copilot"])
def test_a_file_that_its_client_leaves_out_whole_is_shouted(
    client: HookClient, tmp_path: Path
) -> None:
    home = HookedHome(tmp_path)
    place = place_in(client, home.home, home.state)
    place.file.parent.mkdir(parents=True, exist_ok=True)
    place.file.write_text("// not ours")
    # Whose hooks were never installed is no alarm.
    assert health_of(client, home.home, home.state, tmp_path).alarms == ()
    place.file.unlink()
    install(place)
    whole = place.file.read_text()
    for text in (f"// mine\n{whole}", whole.rstrip()[:-1] + ",}", "[]"):
        place.file.write_text(text)
        found = health_of(client, home.home, home.state, tmp_path)
        assert (found.state, len(found.alarms)) == ("unreadable", 1), text[:9]
        assert found.alarms[0].startswith("ITS HOOKS ARE OFF"), text[:9]
        assert str(place.file) in found.alarms[0], text[:9]
    shown = home.command("hooks", "status")
    # The clients after it are told of, too.
    assert (shown.returncode, "opencode: absent" in shown.stdout) == (1, True)


def test_a_session_that_looks_for_its_hooks_elsewhere_is_shouted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, other = tmp_path / ".ironcurtain", tmp_path / "other"
    install(place_in("claude", tmp_path, state))
    client = tmp_path / "claude"
    client.symlink_to("/bin/bash")

    def alarms() -> list[str]:
        return sorted(health_of("claude", tmp_path, state, tmp_path).alarms)

    variables = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": "other"}
    with subprocess.Popen(
        [str(client), "-c", "echo; read"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=variables, cwd=tmp_path,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        running.stdout.readline()
        said = f"OUR HOOKS ARE NOT IN {other}/settings.json, where %s looks for them, %s"
        of_process = said % (f"process {running.pid}", "by CLAUDE_CONFIG_DIR")
        assert alarms() == [of_process]
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(other))
        assert alarms() == [of_process, said % ("this shell", "by CLAUDE_CONFIG_DIR")]
        assert remove(place_in("claude", tmp_path, state)) == "restored"
        place = place_for("claude", tmp_path, state)
        assert install(place) == other / "settings.json"
        assert alarms() == []
        monkeypatch.delenv("CLAUDE_CONFIG_DIR")
        usual = tmp_path / ".claude/settings.json"
        said = f"OUR HOOKS ARE NOT IN {usual}, where this shell looks for them, %s"
        assert alarms() == [said % "without CLAUDE_CONFIG_DIR"]


def test_a_transcript_that_grew_while_no_event_came_is_shouted(tmp_path: Path) -> None:
    state, project = tmp_path / ".ironcurtain", tmp_path / ".claude/projects/-w"
    project.mkdir(parents=True)
    install(place_in("claude", tmp_path, state))
    installed = kept_file(state, "claude").stat().st_mtime
    transcript = project / "a.jsonl"

    def alarms(begun: str) -> tuple[str, ...]:
        transcript.write_text(f'{{"type":"user","timestamp":"{begun}"}}\n')
        os.utime(transcript, (installed + 600, installed + 600))
        return health_of("claude", tmp_path, state, tmp_path).alarms

    assert "GREW AND NO EVENT CAME" in alarms("2999-01-01T00:00:00.000Z")[0]
    # A session that was there before the hooks has none.
    assert alarms("2001-01-01T00:00:00.000Z") == ()
    assert alarms("no time") == ()
    (state / "doors").mkdir()
    note_event(state, "claude")
    os.utime(state / "doors/claude.fired", (installed + 590, installed + 590))
    assert alarms("2999-01-01T00:00:00.000Z") == ()


@pytest.mark.skipif(not CODEX.exists(), reason="Codex CLI is not installed: npm ci")
def test_codex_says_itself_that_nobody_trusts_the_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "codex").write_text(f'#!/bin/sh\nexec {NODE} {CODEX} "$@"\n')
    (programs / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    state = tmp_path / ".ironcurtain"
    install(place_in("codex", tmp_path, state))
    found = health_of("codex", tmp_path, state, tmp_path).alarms
    assert found == ("CODEX SKIPS 6 OF OUR HOOKS: accept them in its /hooks",)


CLIENT = """
import os, sys
from pathlib import Path
from ironcurtain_proxy.hooks.health import hook_watch
watch = hook_watch(Path(sys.argv[-1]))
print("off" if watch is None else watch())
"""


def asked_below_a_client(state: Path, project: Path) -> str:
    """Return what a proxy says whose client has the name of one that is known."""
    client = project / "claude"
    if not client.exists():
        # A shell under the client's name, which stays there while its child asks.
        client.symlink_to("/bin/bash")
    line = '"$0" "$@"; exit $?'
    words = [str(client), "-c", line, sys.executable, "-c", CLIENT, str(state)]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_client_that_runs_without_its_hooks_uses_no_server_until_a_person_accepts(
    tmp_path: Path,
) -> None:
    state, project = tmp_path / ".ironcurtain", tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    assert asked_below_a_client(state, project) == "off"
    install(place_in("claude", tmp_path, state))
    installed_at(state, 0)
    assert "its hooks do not come" in asked_below_a_client(state, project)
    (project / ".claude/settings.json").write_text('{"disableAllHooks": true}')
    said = asked_below_a_client(state, project)
    assert "settings.json switches them off" in said
    assert "hooks accept" not in said, "the command is not the agent's to run"
    accept("claude", str(project), state)
    assert asked_below_a_client(state, project) == ""
    # The clock of the machine was set back: it was not there before the hooks for that.
    os.utime(kept_file(state, "claude"), (1 << 40, 1 << 40))
    (state / "clients/unhooked.json").unlink()
    assert "switches them off" in asked_below_a_client(state, project)
    installed_at(state, 1 << 40)
    # It was there before the hooks.
    assert asked_below_a_client(state, project) == ""


def test_a_client_whose_hook_has_come_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / ".ironcurtain"
    install(place_in("claude", tmp_path, state))
    installed_at(state, 0)
    monkeypatch.setattr(health, "_client_above", lambda _pid: ("claude", os.getpid()))
    watch = HookWatch(state, os.getpid())
    assert "hooks do not come" in watch()
    (state / "doors").mkdir()
    noted = state / "doors" / f"{os.getpid()}-{start_of(os.getpid())}.lock"
    noted.touch()
    # The door is there: the proxy may hold it itself.
    assert "hooks do not come" in watch()
    noted.write_text(".")
    assert watch() == ""
    noted.unlink()
    assert watch() == ""


def test_what_an_administrator_keeps_nobody_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "are_kept", lambda: True)
    with pytest.raises(ConfigurationError, match="keeps the hooks"):
        accept("claude", str(tmp_path), tmp_path)
    monkeypatch.setattr(health, "_client_above", lambda _pid: ("claude", os.getpid()))
    assert "hooks do not come" in HookWatch(tmp_path, os.getpid())()


def test_hooks_that_only_record_deny_nothing_and_ask_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = HookedHome(tmp_path)
    monkeypatch.chdir(home.workspace)
    home.observe()
    settings = str(home.workspace / ".claude/settings.json")
    calls = [
        ("Write", {"file_path": settings, "content": "{}"}),
        ("Bash", {"command": "curl https://example.com"}),
        ("Bash", {"command": "ls"}),
        ("Teleport", {}),
    ]
    for tool, given in calls:
        assert home.decide(tool, dict(given)) == "silence"
    assert decision_in(home.fire("PreToolUse", "{").stdout) == "silence"
    assert home.fire("PermissionRequest", home.call("Bash", {"command": "x"})).stdout == "{}\n"
    home.end_session()
    results = [one["result"] for one in home.outcomes()]
    assert "denied" in [one["status"] for one in results if isinstance(one, dict)]
    assert {one["decidedBy"] for one in home.records()} == {"kernel", "client"}
    assert all(one["observed"] is True for one in home.records())
    # Nor does a chain that is broken.
    words = hook_words(DIALECTS["claude"], "PreToolUse", tmp_path / "none", observes=True)
    words[words.index(INTERPRETER)] = "/gone"
    assert subprocess.run(words, capture_output=True, check=False, input=b"{}").returncode == 0


def test_hooks_alone_are_no_mistake_though_no_server_is_configured(tmp_path: Path) -> None:
    home = HookedHome(tmp_path)
    assert "no server is configured" in home.command("check").stdout
    install(place_in("claude", home.home, home.state))
    checked = home.command("check")
    assert (checked.returncode, "no server" in checked.stdout) == (0, False), checked.stdout
    doctor = home.command("doctor").stdout
    assert "FAIL  configuration" not in doctor
    assert "refuses to start" not in home.command("status").stderr
