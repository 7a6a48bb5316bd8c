"""Hooks are put into clients' files, beside other people's, and taken out byte for byte."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.events import HookClient
from ironcurtain_proxy.hooks.installing import (
    file_of,
    install,
    remove,
    state_of,
    switched_off_by,
    write_policy,
)
from tests.hooks.hooked import HookedHome

OTHERS = """{
  // not ours to format
}"""
SETTINGS = (
    '{"model":"opus",\n "hooks": {"PreToolUse": [{"matcher":"Bash","hooks":'
    '[{"type":"command","command":"theirs"}]}], "Odd": []},  "permissions": {} }'
)


@pytest.mark.parametrize("before", [None, "{}", SETTINGS])
def test_hooks_come_first_and_go_byte_for_byte(before: str | None, tmp_path: Path) -> None:
    file = file_of("claude", tmp_path)
    if before is not None:
        file.parent.mkdir()
        file.write_text(before)
    assert state_of("claude", tmp_path) == "absent"
    for _ in range(2):
        assert install("claude", tmp_path, tmp_path / "state") == file
        assert state_of("claude", tmp_path) == "installed"
    found = orjson.loads(file.read_bytes())["hooks"]["PreToolUse"]
    assert len(found) == (2 if before == SETTINGS else 1)
    assert "stub.py" in str(found[0])
    assert remove("claude", tmp_path, tmp_path / "state") == "restored"
    assert (file.read_text() if file.exists() else None) == before
    assert remove("claude", tmp_path, tmp_path / "state") == "none"


def test_what_somebody_changed_since_stays_when_the_hooks_go(tmp_path: Path) -> None:
    file = install("claude", tmp_path, tmp_path / "state")
    document = orjson.loads(file.read_bytes())
    theirs = {"hooks": [{"type": "command", "command": "theirs"}]}
    document["hooks"]["PreToolUse"].insert(0, theirs)
    file.write_bytes(orjson.dumps(document))
    assert state_of("claude", tmp_path) == "incomplete"
    assert remove("claude", tmp_path, tmp_path / "state") == "taken out"
    assert orjson.loads(file.read_bytes()) == {"hooks": {"PreToolUse": [theirs]}}


def test_a_file_that_switches_hooks_off_is_told(tmp_path: Path) -> None:
    file = install("claude", tmp_path, tmp_path / "state")
    file.write_bytes(orjson.dumps({**orjson.loads(file.read_bytes()), "disableAllHooks": True}))
    assert state_of("claude", tmp_path) == "switched off"


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("claude", ".claude/settings.local.json", '{"disableAllHooks": true}'),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n"),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"enabled": false}}'),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"disabled": ["ironcurtain"]}}'),
    ],
)
def test_a_project_that_switches_hooks_off_is_told(
    client: HookClient, name: str, text: str, tmp_path: Path
) -> None:
    assert switched_off_by(client, tmp_path) is None
    file = tmp_path / name
    file.parent.mkdir()
    file.write_text("{")
    assert switched_off_by(client, tmp_path) is None
    file.write_text(text)
    assert switched_off_by(client, tmp_path) == file


@pytest.mark.parametrize("client", ["claude", "codex", "gemini"])
def test_the_entries_of_each_client_are_known_again_and_removed(
    client: HookClient, tmp_path: Path
) -> None:
    file = install(client, tmp_path, tmp_path / "state")
    assert state_of(client, tmp_path) == "installed"
    document = orjson.loads(file.read_bytes())
    file.write_bytes(orjson.dumps({**document, "more": 1}))
    assert remove(client, tmp_path, tmp_path / "state") == "taken out"
    assert orjson.loads(file.read_bytes()) == {"hooks": {}, "more": 1}


@pytest.mark.parametrize("text", [OTHERS, "[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', "\x00"])
def test_a_file_that_cannot_be_read_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    file = file_of("claude", tmp_path)
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"settings\.json"):
        install("claude", tmp_path, tmp_path / "state")
    assert file.read_text() == text


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
