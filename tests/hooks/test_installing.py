"""Hooks are put into clients' files, beside other people's, and taken out byte for byte."""

import resource
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.annotating.annotate import annotate
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.events import HookClient
from ironcurtain_proxy.hooks.health import state_of
from ironcurtain_proxy.hooks.installing import (
    install,
    place_for,
    place_in,
    prefix_of,
    remove,
    write_policy,
)
from ironcurtain_proxy.hooks.launching import switched_off_by
from ironcurtain_proxy.model.server import SHELL
from ironcurtain_proxy.model.values import Json
from tests.hooks.hooked import HookedHome

OTHERS = """{
  // not ours to format
}"""
SETTINGS = (
    '{"model":"opus",\n "hooks": {"PreToolUse": [{"matcher":"Bash","hooks":'
    '[{"type":"command","command":"theirs"}]}], "Odd": []},  "permissions": {} }'
)


@pytest.mark.parametrize("before", [None, "{}", "\ufeff{}", SETTINGS])
def test_hooks_come_first_and_go_byte_for_byte(before: str | None, tmp_path: Path) -> None:
    file = place_in("claude", tmp_path, tmp_path / "state").file
    if before is not None:
        file.parent.mkdir()
        file.write_text(before)
    assert state_of("claude", tmp_path, tmp_path / "state") == "absent"
    for _ in range(2):
        assert install(place_in("claude", tmp_path, tmp_path / "state")) == file
        assert state_of("claude", tmp_path, tmp_path / "state") == "installed"
    found = orjson.loads(file.read_bytes())["hooks"]["PreToolUse"]
    assert len(found) == (2 if before == SETTINGS else 1)
    assert "stub.py" in str(found[0])
    assert remove(place_in("claude", tmp_path, tmp_path / "state")) == "restored"
    assert (file.read_text() if file.exists() else None) == before
    assert remove(place_in("claude", tmp_path, tmp_path / "state")) == "none"


COMMENTED = """\ufeff// mine
{ /* first */ "model": {"name": "pro"}, // theirs, too
  "hooks": {
    // what runs before
    "BeforeTool": [ // the list
      {"hooks": [{"type": "command", "command": "theirs"}]} /* last */
    ],
    "Odd": [], "Stop": [{"a": "]"}, {"b": 1}, /* of three */ 3]
  }, "url": "http://x/*no*/" }
"""


def test_comments_in_the_file_of_a_client_that_takes_them_stay_and_so_does_all_else(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    place = place_in("gemini", tmp_path, state)
    place.file.parent.mkdir()
    for before in (COMMENTED, "// only this\n{}\n", '{\r\n  "a": 1 // x\r\n}\r\n'):
        place.file.write_bytes(before.encode())
        for _ in range(2):
            install(place)
            assert state_of("gemini", tmp_path, state) == "installed"
        hooked = place.file.read_bytes().decode()
        rest = iter(hooked)
        assert all(one in rest for one in before.removeprefix("\ufeff"))
        assert remove(place) == "restored"
        assert place.file.read_bytes().decode() == before
        # What was changed since stays, and only our entries go.
        install(place)
        changed = place.file.read_bytes().decode() + "// later\n"
        place.file.write_bytes(changed.encode())
        assert remove(place) == "taken out"
        left = place.file.read_bytes().decode()
        assert left.count("//") + left.count("/*") == before.count("//") + before.count("/*") + 1
        assert "stub.py" not in left
        assert state_of("gemini", tmp_path, state) == "absent"


def test_hooks_go_where_the_client_looks_by_its_variable_and_are_taken_out_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, state = tmp_path / "home", tmp_path / "home/.ironcurtain"
    for client, dialect in DIALECTS.items():
        variable, below = dialect.places.moved_by
        if not variable:
            continue
        moved = tmp_path / client
        file = moved / below / dialect.places.file
        file.parent.mkdir(parents=True)
        file.write_text(SETTINGS)
        monkeypatch.setenv(variable, str(moved))
        assert install(place_for(client, home, state)) == file
        monkeypatch.delenv(variable)
        assert state_of(client, home, state) == "installed"
        assert not (home / dialect.places.directory).exists()
        with pytest.raises(ConfigurationError, match=f"are in {file}.*{variable}"):
            place_for(client, home, state)
        assert remove(place_in(client, home, state)) == "restored"
        assert file.read_text() == SETTINGS
        assert place_for(client, home, state).directory == home / dialect.places.directory


def test_what_somebody_changed_since_stays_when_the_hooks_go(tmp_path: Path) -> None:
    file = install(place_in("claude", tmp_path, tmp_path / "state"))
    document = orjson.loads(file.read_bytes())
    theirs = {"hooks": [{"type": "command", "command": "theirs"}]}
    document["hooks"]["PreToolUse"].insert(0, theirs)
    file.write_bytes(orjson.dumps(document))
    assert state_of("claude", tmp_path, tmp_path / "state") == "incomplete"
    assert remove(place_in("claude", tmp_path, tmp_path / "state")) == "taken out"
    assert orjson.loads(file.read_bytes()) == {"hooks": {"PreToolUse": [theirs]}}


def test_what_somebody_added_before_the_hooks_were_put_in_again_comes_back(tmp_path: Path) -> None:
    place = place_in("claude", tmp_path, tmp_path / "state")
    file = install(place)
    file.chmod(0o644)
    document = orjson.loads(file.read_bytes())
    theirs = {"hooks": [{"type": "command", "command": "theirs"}]}
    document["hooks"]["Stop"].append(theirs)
    file.write_bytes(orjson.dumps(document))
    install(place)
    assert remove(place) == "restored"
    assert orjson.loads(file.read_bytes()) == {"hooks": {"Stop": [theirs]}}
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_torn_copy_of_what_was_there_takes_out_our_entries_alone(tmp_path: Path) -> None:
    place = place_in("claude", tmp_path, tmp_path / "state")
    file = install(place)
    place.kept.write_text('{"file": "')
    assert remove(place) == "taken out"
    assert orjson.loads(file.read_bytes()) == {"hooks": {}}


OWN_PREFIX = '{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/opt/own", "A": "b"}}'


@pytest.mark.parametrize(
    ("before", "observes", "expected"),
    [
        ("{}", False, "ours"),
        ("{}", True, "none"),
        ('{"env": {"A": "b"}}', False, "ours"),
        (OWN_PREFIX, False, "another"),
        (OWN_PREFIX, True, "another"),
    ],
)
def test_the_shell_prefix_is_ours_unless_its_user_has_one_or_the_hooks_only_record(
    before: str, *, observes: bool, expected: str, tmp_path: Path
) -> None:
    file, state = place_in("claude", tmp_path, tmp_path / "state").file, tmp_path / "state"
    file.parent.mkdir()
    file.write_text(before)
    place = place_in("claude", tmp_path, state)
    for only_records in (False, True, observes):
        install(place, observes=only_records)
    assert prefix_of("claude", file, state) == expected
    assert remove(place) == "restored"
    assert file.read_text() == before
    install(place, observes=observes)
    file.write_bytes(orjson.dumps({**orjson.loads(file.read_bytes()), "more": 1}))
    assert remove(place) == "taken out"
    assert orjson.loads(file.read_bytes()) == {**orjson.loads(before), "hooks": {}, "more": 1}


def test_an_administrator_s_file_holds_for_everybody_and_goes_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "etc/managed-settings.json"
    file.parent.mkdir()
    file.write_text(SETTINGS)
    file.chmod(0o644)
    place = place_in("claude", tmp_path / "home", tmp_path / "state", file)
    assert install(place) == file
    words = orjson.loads(file.read_bytes())["hooks"]["PreToolUse"][0]["hooks"][0]["args"]
    # A prefix lies in a user's own directory.
    assert prefix_of("claude", file, tmp_path / "state") == "none"
    # The stub finds the home of whoever starts it.
    assert words[-8:-5] == ["~", "claude", "PreToolUse"]
    assert str(tmp_path) not in str(words)
    assert file.stat().st_mode & 0o777 == 0o644
    assert state_of("claude", tmp_path / "home", tmp_path / "state") == "absent"
    assert remove(place) == "restored"
    assert file.read_text() == SETTINGS


def test_a_file_that_switches_hooks_off_is_told(tmp_path: Path) -> None:
    file = install(place_in("claude", tmp_path, tmp_path / "state"))
    file.write_bytes(orjson.dumps({**orjson.loads(file.read_bytes()), "disableAllHooks": True}))
    assert state_of("claude", tmp_path, tmp_path / "state") == "switched off"


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("claude", ".claude/settings.local.json", '{"disableAllHooks": true}'),
        ("claude", ".claude/settings.json", '{"env": {"LD_PRELOAD": "./x.so"}}'),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n"),
        ("codex", ".codex/config.toml", "features = {codex_hooks = false}\n"),
        ("gemini", ".env", "export LD_PRELOAD=./x.so\n"),
        ("copilot", ".github/copilot/settings.json", '{"disableAllHooks": true}'),
        ("copilot", ".github/copilot/settings.local.json", '{"disableAllHooks": true}'),
        ("copilot", ".claude/settings.json", '{"disableAllHooks": true}'),
        ("cursor", ".cursor/hooks.json", '{"hooks": {"preToolUse": [{"command": "./x"}]}}'),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"enabled": false}}'),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"disabled": ["ironcurtain"]}}'),
        # Each of these was obeyed by the real client.
        ("gemini", ".gemini/settings.json", '{ // on\n"hooksConfig": {"enabled": false}}'),
        ("gemini", ".gemini/settings.json", '{/* " */"hooksConfig": {"enabled": "false"}}'),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"enabled": "$OFF"}}'),
        ("claude", ".claude/settings.json", '\ufeff{"disable\\u0041llHooks": true}'),
        ("claude", ".claude/settings.json", '{"env": {"LD\\u005fTRACE_LOADED_OBJECTS": "1"}}'),
        ("claude", ".claude/settings.json", '{"env": {"LD_SHOW_AUXV": "1"}}'),
        ("claude", ".claude/settings.json", '{"env": {"LD_DEBUG": "help"}}'),
        ("claude", ".claude/settings.json", '{"env": {"LOCPATH": "."}}'),
        ("gemini", ".env", "SHELLOPTS=noexec\n"),
    ],
)
def test_a_project_that_switches_hooks_off_is_told(
    client: HookClient, name: str, text: str, tmp_path: Path
) -> None:
    project, file = tmp_path / "project", tmp_path / "project" / name
    file.mkdir(parents=True)

    def off(place: Path, home: Path = tmp_path) -> Path | None:
        return switched_off_by(DIALECTS[client], place, home)

    assert off(project) is None
    file.rmdir()
    file.symlink_to("nowhere")
    assert off(project) is None
    file.unlink()
    (project / "deep/down").mkdir(parents=True)
    assert off(project) is None
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{")
    # What we cannot read, its client may.
    assert off(project) == (None if name == ".env" else file)
    file.write_text("{}" if file.suffix == ".json" else "# nothing")
    assert off(project) is None
    file.write_text(text)
    assert off(project) == file
    # Codex obeys the file of the root also where it was started below that.
    assert off(project / "deep/down") == file
    # What lies in the home is the user's own.
    assert off(project, project) is None


@pytest.mark.parametrize("client", ["claude", "codex", "gemini", "cursor"])
def test_the_entries_of_each_client_are_known_again_and_removed(
    client: HookClient, tmp_path: Path
) -> None:
    file = install(place_in(client, tmp_path, tmp_path / "state"))
    assert state_of(client, tmp_path, tmp_path / "state") == "installed"
    document = orjson.loads(file.read_bytes())
    file.write_bytes(orjson.dumps({**document, "more": 1}))
    assert remove(place_in(client, tmp_path, tmp_path / "state")) == "taken out"
    left = {"version": 1} if client == "cursor" else {}
    assert orjson.loads(file.read_bytes()) == {"hooks": {}, "more": 1, **left}


@pytest.mark.parametrize("text", [OTHERS, "[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', "\x00"])
def test_a_file_that_cannot_be_read_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    file = place_in("claude", tmp_path, tmp_path / "state").file
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"settings\.json"):
        install(place_in("claude", tmp_path, tmp_path / "state"))
    assert file.read_text() == text


@pytest.mark.parametrize("before", [None, SETTINGS])
def test_where_the_file_cannot_be_written_it_is_as_it_was_and_nothing_says_that_it_has_hooks(
    before: str | None, tmp_path: Path
) -> None:
    place = place_in("claude", tmp_path, tmp_path / "state")
    if before is not None:
        place.file.parent.mkdir()
        place.file.write_text(before)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, usual[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            install(place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert (place.file.read_text() if place.file.exists() else None) == before
    assert not place.kept.exists()


def test_the_policy_gets_what_is_missing_and_keeps_what_is_there(tmp_path: Path) -> None:
    home = HookedHome(tmp_path)
    policy = home.state / "generated/compiled-policy.json"
    document = orjson.loads(policy.read_bytes())
    document["rules"].insert(0, {**document["rules"][0], "name": "mine"})
    del document["commandServers"]
    policy.write_bytes(orjson.dumps(document))
    assert write_policy(home.state, "/elsewhere", "read-only") == [str(policy)]
    assert orjson.loads(policy.read_bytes()) == {**document, "commandServers": ["shell"]}
    config = orjson.loads((home.state / "config.json").read_bytes())
    assert config["allowedDirectory"] == str(home.workspace)
    assert write_policy(home.state, "/elsewhere", "read-only") == []


def test_a_server_that_is_called_shell_leaves_the_clients_own_shell_described(
    tmp_path: Path,
) -> None:
    home = HookedHome(tmp_path)
    file = home.state / "generated/tool-annotations.json"
    document = orjson.loads(file.read_bytes())
    theirs = {"toolName": "shell_execute", "args": {"command": ["command"]}}
    ours = document["servers"]["shell"]["tools"]
    document["servers"]["shell"]["tools"] = [theirs]
    file.write_bytes(orjson.dumps(document))
    assert write_policy(home.state, "/elsewhere", "coding") == [str(file)]
    assert orjson.loads(file.read_bytes())["servers"]["shell"]["tools"] == [theirs, *ours]
    schema: Json = {"properties": {"command": {"type": "string"}}}
    run: dict[str, Json] = {"name": "run_command", "inputSchema": schema}
    assert annotate("shell", [run]).annotations != SHELL


@pytest.mark.parametrize(
    ("client", "tool", "secrets"),
    [
        ("claude", "Read", [".claude.json", ".credentials.json", "history.jsonl"]),
        ("gemini", "read_file", ["oauth_creds.json", "mcp-oauth-tokens.json"]),
    ],
)
def test_what_a_client_keeps_in_a_moved_directory_of_logins_and_prompts_is_closed(
    client: HookClient,
    tool: str,
    secrets: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, dialect = HookedHome(tmp_path), DIALECTS[client]
    monkeypatch.chdir(home.workspace)
    variable, below = dialect.places.moved_by
    monkeypatch.setenv(variable, str(tmp_path / "moved"))
    place = place_in(client, home.home, home.state)
    install(place)
    home.client = client
    event = next(one for one, kind in dialect.events.items() if kind == "before")
    for name in secrets:
        asked = home.call(tool, {"file_path": str(tmp_path / "moved" / below / name)})
        assert "Access to protected path" in home.fire(event, asked).stdout, name
    home.end_session()
    assert remove(place) == "restored"
