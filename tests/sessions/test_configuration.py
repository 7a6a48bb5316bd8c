"""By which configuration a question is explained: the session's own, and nobody else's word."""

import os
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.cli.explain import offered_rule
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.mailboxes import sessions_directory, this_process
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.sessions import asker_of, command_prefix, configuration_of
from tests.sessions.session_fixture import SESSION, a_question, a_session


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("work", "other", "box", "elsewhere"):
        (tmp_path / name).mkdir(mode=0o700)
    return tmp_path


def own(home: Path) -> dict[str, str]:
    """The variables of the reviewer's terminal: another workspace, and a filter."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "ALLOWED_DIRECTORY": str(home / "other"),
        "PROTECTED_PATHS": '["/nowhere"]',
        "SERVER_FILTER": "none",
    }


def test_the_settings_are_those_of_the_session_and_not_of_the_reviewer(home: Path) -> None:
    (home / "generated").mkdir()
    servers = {"fs": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem"]}}
    config = home / "c.json"
    config.write_text('{"unknownTools": "ask", "protectedPaths": ["./keys"]}')
    theirs = a_session(
        home,
        home / "box",
        ALLOWED_DIRECTORY=str(home / "work"),
        MCP_SERVERS_CONFIG=orjson.dumps(servers).decode(),
        SERVER_CREDENTIALS='{"fs": {"TOKEN": "hunter2"}}',
        IRONCURTAIN_CONFIG=str(config),
    )
    found = configuration_of(a_question(home / "box"), sessions_directory(home), own(home))
    assert found.settings.workspace == theirs.workspace
    assert found.settings.protected_paths == (home / "keys",)
    assert found.settings.unknown_tools == "ask"
    assert [(one.name, one.annotations) for one in found.settings.servers] == [("fs", "filesystem")]
    assert found.policy_version == "p1"
    assert load_policy(found.settings).version == load_policy(theirs).version
    state = (home / ".ironcurtain/sessions" / SESSION / "session.json").read_text()
    assert "hunter2" not in state


def test_a_rule_names_the_directory_outside_the_sessions_workspace(home: Path) -> None:
    """By the reviewer's own configuration the file lies in the workspace: no rule would follow."""
    a_session(home, home / "box", ALLOWED_DIRECTORY=str(home / "work"))
    question = a_question(home / "box", arguments={"path": str(home / "other/a.txt")})
    found = configuration_of(question, sessions_directory(home), own(home))
    rule = offered_rule(question.request, found)
    assert rule is not None
    assert rule.within is not None
    assert str(rule.within) == str(home / "other")


def test_a_mailbox_elsewhere_names_no_configuration(home: Path) -> None:
    """Its state file beside the questions is the word of whoever owns that mailbox."""
    a_session(home / "elsewhere", home / "box")
    state = home / "elsewhere/.ironcurtain/sessions" / SESSION / "session.json"
    (home / "box/session.json").write_bytes(state.read_bytes())
    with pytest.raises(ConfigurationError, match="is not known here"):
        configuration_of(a_question(home / "box"), sessions_directory(home), own(home))


@pytest.mark.parametrize("name", ["", "../box", "..", "a/b", "/etc", "x\n", ".hidden"])
def test_a_question_cannot_name_a_directory_of_its_own(home: Path, name: str) -> None:
    a_session(home, home / "box")
    asked = a_question(home / "box")
    forged = replace(asked, request=replace(asked.request, session=name))
    with pytest.raises(ConfigurationError, match="not known"):
        configuration_of(forged, sessions_directory(home), own(home))


def test_a_question_in_the_name_of_another_session_is_not_explained(home: Path) -> None:
    a_session(home, home / "box")
    strangers = [
        a_question(home / "elsewhere"),
        a_question(home / "box", Owner(os.getppid(), "")),
        a_question(home / "box", Owner(this_process().pid, "1")),
    ]
    for asked in strangers:
        with pytest.raises(ConfigurationError, match="not known"):
            configuration_of(asked, sessions_directory(home), own(home))


def test_a_state_file_that_is_a_link_or_torn_is_not_believed(home: Path) -> None:
    a_session(home, home / "box")
    state = home / ".ironcurtain/sessions" / SESSION / "session.json"
    raw = state.read_bytes()
    for broken in (b"", raw[: len(raw) // 2], b"[]", b'{"pid": 1}'):
        state.write_bytes(broken)
        with pytest.raises(ConfigurationError, match="not known"):
            configuration_of(a_question(home / "box"), sessions_directory(home), own(home))
    (home / "real.json").write_bytes(raw)
    state.unlink()
    state.symlink_to(home / "real.json")
    with pytest.raises(ConfigurationError, match="not known"):
        configuration_of(a_question(home / "box"), sessions_directory(home), own(home))


def test_a_command_names_the_files_of_the_session_where_they_are_others(home: Path) -> None:
    sessions, asked = sessions_directory(home), a_question(home / "box")
    a_session(home, home / "box")
    found = configuration_of(asked, sessions, own(home))
    assert command_prefix(found, own(home)) == ""
    assert command_prefix(found, {"GENERATED_DIR": "/x"}) == "env -u GENERATED_DIR "
    (home / "a b.json").write_text("{}")
    a_session(home, home / "box", IRONCURTAIN_CONFIG=str(home / "a b.json"))
    found = configuration_of(asked, sessions, own(home))
    assert command_prefix(found, own(home)) == f"env 'IRONCURTAIN_CONFIG={home}/a b.json' "


def test_who_asks_is_known_where_the_mailbox_lies_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    a_session(home, home / "box", ALLOWED_DIRECTORY=str(home / "work"))
    assert asker_of(a_question(home / "box")).workspace == "~/work"
    assert asker_of(a_question(home / "elsewhere")).workspace == ""
