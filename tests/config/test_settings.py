"""Environment over file over defaults."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.reading.document import ProblemsError
from ironcurtain_proxy.config.settings import (
    Settings,
    home_directory,
    load_settings,
    refuse_platform,
)
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json
from tests.config.files import write
from tests.program import PATIENCE
from tests.tables import table

SERVERS = '{"files": {"command": "x"}, "git": {"command": "y"}}'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path.resolve() / "home"
    (home / "work").mkdir(parents=True)
    return home


def load(home: Path, file: Json = None, **variables: str) -> Settings:
    if file is not None:
        write(home / ".ironcurtain/config.json", file)
    return load_settings({"HOME": str(home), **variables})


def refusal(home: Path, file: Json = None, **variables: str) -> str:
    with pytest.raises(ProblemsError) as caught:
        load(home, file, **variables)
    return str(caught.value).replace(str(home), "HOME")


def test_without_configuration_everything_has_a_default(home: Path) -> None:
    settings = load(home)
    state = home / ".ironcurtain"
    assert settings.state_dir == state
    assert settings.workspace is None
    assert settings.config_file is None
    assert settings.servers == ()
    assert settings.escalation_dir is None
    assert settings.mailbox_dir == state / "sessions" / settings.session
    assert settings.audit.path == state / "audit.jsonl"
    assert settings.audit.redact
    assert settings.escalation_timeout_seconds == 300
    assert settings.max_message_bytes == 64 * 1024 * 1024
    assert settings.sandbox_policy == "warn"
    assert (settings.breaker.threshold, settings.breaker.window_seconds) == (20, 60)
    assert settings.warnings == ()
    assert not state.exists()


def test_a_session_without_a_name_gets_a_random_one(home: Path) -> None:
    assert load(home).session != load(home).session


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b", "a b", "x" * 129, "ü", "a\n"])
def test_a_session_name_that_could_leave_its_directory_is_refused(name: str, home: Path) -> None:
    assert refusal(home, IRONCURTAIN_SESSION_ID=name).startswith("IRONCURTAIN_SESSION_ID: ")


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(home: Path) -> None:
    file: Json = {
        "_comment": "mine",
        "sandboxPolicy": "enforce",
        "escalationTimeoutSeconds": 60,
        "auditRedaction": {"enabled": False},
        "auditFsync": "always",
        "circuitBreaker": {"threshold": 5},
        "mcpServers": {"a": {"command": "x"}},
    }
    settings = load(
        home, file, ESCALATION_TIMEOUT_SECONDS="30", AUDIT_REDACTION="true", SANDBOX_POLICY=""
    )
    assert settings.config_file == home / ".ironcurtain/config.json"
    assert settings.escalation_timeout_seconds == 30
    assert settings.audit.redact
    assert settings.audit.fsync == "always"
    assert settings.sandbox_policy == "enforce"
    assert (settings.breaker.threshold, settings.breaker.window_seconds) == (5, 60)
    assert [spec.name for spec in settings.servers] == ["a"]


def test_paths_are_against_the_file_that_names_them(home: Path) -> None:
    (home / ".ironcurtain/ws").mkdir(parents=True)
    file: Json = {"allowedDirectory": "ws", "auditLogPath": "~/log/../a.jsonl"}
    settings = load(home, file, ESCALATION_DIR="mail")
    assert str(settings.workspace) == str(home / ".ironcurtain/ws")
    assert settings.audit.path == home / "a.jsonl"
    assert settings.escalation_dir == settings.mailbox_dir == Path.cwd() / "mail"


def test_the_file_may_be_named_and_may_be_yaml(home: Path) -> None:
    (home / "mine.yaml").write_text("sandboxPolicy: enforce\n")
    assert load(home, IRONCURTAIN_CONFIG="~/mine.yaml").sandbox_policy == "enforce"
    settings = load_settings({"HOME": str(home)}, home / "mine.yaml")
    assert settings.config_file == home / "mine.yaml"


def test_a_file_that_is_named_must_be_there(home: Path) -> None:
    text = refusal(home, IRONCURTAIN_CONFIG=str(home / "nope.json"))
    assert text == "HOME/nope.json: cannot be read: it does not exist"


def test_a_file_that_cannot_be_reached_does_not_count_as_none(home: Path) -> None:
    (home / ".ironcurtain").symlink_to(".ironcurtain")
    assert "too many levels of symbolic links" in refusal(home)


@pytest.mark.parametrize(
    ("file", "problem"),
    table("config/settings.a_slip_in_the_file_is_refused", list[tuple[Json, str]]),
    ids=str,
)
def test_a_slip_in_the_file_is_refused_with_its_place(file: Json, problem: str, home: Path) -> None:
    assert refusal(home, file) == f"HOME/.ironcurtain/config.json: {problem}"


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"AUDIT_REDACTION": "maybe"}, "AUDIT_REDACTION: must be true or false, not text"),
        (
            {"ESCALATION_TIMEOUT_SECONDS": "5m"},
            "ESCALATION_TIMEOUT_SECONDS: must be a whole number, not text",
        ),
        (
            {"ESCALATION_TIMEOUT_SECONDS": "-1"},
            "ESCALATION_TIMEOUT_SECONDS: must be a whole number, not text",
        ),
        ({"SANDBOX_POLICY": "off"}, 'SANDBOX_POLICY: "off" is not one of enforce, warn'),
        ({"PROTECTED_PATHS": "/a:/b"}, "PROTECTED_PATHS: is not JSON"),
        ({"PROTECTED_PATHS": "[1]"}, "PROTECTED_PATHS: $[0]: must be text, not a number"),
        ({"MCP_SERVERS_CONFIG": "[]"}, "MCP_SERVERS_CONFIG: must be an object, not a list"),
        ({"MCP_SERVERS_CONFIG": '{"a":{}}'}, "MCP_SERVERS_CONFIG: $.a.command: is missing"),
        (
            {"SERVER_CREDENTIALS": '{"a": 1}'},
            "SERVER_CREDENTIALS: $.a: must be an object, not a number",
        ),
        (
            {"CONTAINER_WORKSPACE_DIR": "ws"},
            "CONTAINER_WORKSPACE_DIR: must be an absolute path other than /",
        ),
        (
            {"MCP_SERVERS_CONFIG": SERVERS, "SERVER_FILTER": "fils"},
            'SERVER_FILTER: $[0]: there is no server "fils" (did you mean "files"?)',
        ),
    ],
    ids=str,
)
def test_a_slip_in_a_variable_is_refused_by_its_name(
    variables: dict[str, str], problem: str, home: Path
) -> None:
    assert refusal(home, **variables).startswith(problem)


@pytest.mark.parametrize("workspace", ["/", "//", "~", "~/work/..", "~/absent", "~/file"])
def test_a_directory_that_cannot_be_a_workspace_is_refused(workspace: str, home: Path) -> None:
    (home / "file").touch()
    assert refusal(home, ALLOWED_DIRECTORY=workspace).startswith("ALLOWED_DIRECTORY: ")


def test_a_link_to_the_home_directory_is_the_home_directory(home: Path) -> None:
    (home / "work/link").symlink_to(home)
    assert "home directory" in refusal(home, ALLOWED_DIRECTORY=str(home / "work/link"))


def test_the_workspace_is_where_its_links_lead(home: Path) -> None:
    (home / "link").symlink_to("work")
    assert str(load(home, ALLOWED_DIRECTORY="~/link").workspace) == str(home / "work")


def test_secrets_leave_the_environment_even_if_the_start_fails(home: Path) -> None:
    environ = {
        "HOME": str(home),
        "SERVER_CREDENTIALS": '{"git": {"TOKEN": "s3cret"}}',
        "AUTO_APPROVE_API_KEY": "s3cret",
        "MCP_SERVERS_CONFIG": '{"git": {"command": "x", "env": {"T": "s3cret"}}}',
        "SANDBOX_POLICY": "nonsense",
    }
    with pytest.raises(ProblemsError) as caught:
        load_settings(environ)
    assert "s3cret" not in str(environ) + str(caught.value)


def test_each_server_gets_its_own_credentials(home: Path) -> None:
    settings = load(
        home,
        MCP_SERVERS_CONFIG=SERVERS,
        SERVER_CREDENTIALS='{"git": {"TOKEN": "s3cret"}, "gitt": {}}',
        AUTO_APPROVE_API_KEY="key",
    )
    files, git = settings.servers
    assert files.credentials == {}
    assert git.credentials == {"TOKEN": "s3cret"}
    assert settings.secrets == {"AUTO_APPROVE_API_KEY": "key"}
    assert "AUTO_APPROVE_API_KEY" not in repr(settings)
    (warning,) = settings.warnings
    assert str(warning) == (
        'SERVER_CREDENTIALS: $.gitt: there is no server "gitt": not used (did you mean "git"?)'
    )


def test_a_secret_with_quotes_comes_in_a_variable_of_its_own(home: Path) -> None:
    hard = 'a"b\\c\n{}'
    environ = {
        "HOME": str(home),
        "MCP_SERVERS_CONFIG": SERVERS,
        "SERVER_CREDENTIALS": '{"git": {"TOKEN": {"from": "IRONCURTAIN_SECRET_1"}, "B": "c"}}',
        "IRONCURTAIN_SECRET_1": hard,
        "IRONCURTAIN_SECRET_2": "unused",
    }
    settings = load_settings(environ)
    assert settings.servers[1].credentials == {"TOKEN": hard, "B": "c"}
    assert not [name for name in environ if name.startswith("IRONCURTAIN_SECRET_")]


@pytest.mark.parametrize("name", ["IRONCURTAIN_SECRET_GONE", "PATH", "HOME", ""])
def test_a_secret_is_taken_from_no_other_variable(home: Path, name: str) -> None:
    said = refusal(home, SERVER_CREDENTIALS='{"git": {"T": {"from": "' + name + '"}}}', PATH="p")
    assert "$.git.T" in said
    assert "IRONCURTAIN_SECRET_" in said


def test_a_broken_secret_is_not_shown(home: Path) -> None:
    assert "s3cret" not in refusal(home, SERVER_CREDENTIALS='{"git": "s3cret"')
    assert "s3cret" not in refusal(home, SERVER_CREDENTIALS='{"git": {"A": ["s3cret"]}}')
    assert "s3cret" not in refusal(home, SERVER_CREDENTIALS='"s3cret"')


def test_secrets_in_a_file_that_others_can_read_are_a_warning(home: Path) -> None:
    file: Json = {"mcpServers": {"a": {"command": "x"}}, "serverCredentials": {"a": {"T": "v"}}}
    path = write(home / ".ironcurtain/config.json", file)
    path.chmod(0o644)
    assert any("chmod 600" in p.message for p in load(home).warnings)
    path.chmod(0o600)
    assert load(home).warnings == ()


def test_the_filter_leaves_the_others_out(home: Path) -> None:
    settings = load(home, MCP_SERVERS_CONFIG=SERVERS, SERVER_FILTER=" git ,")
    assert [spec.name for spec in settings.servers] == ["git"]


def test_servers_may_stand_in_a_file_of_their_own(home: Path) -> None:
    usual = write(home / ".ironcurtain/mcp-servers.json", orjson.loads(SERVERS))
    settings = load(home)
    assert [spec.name for spec in settings.servers] == ["files", "git"]
    assert settings.servers_file == usual
    other = write(home / ".ironcurtain/claude.json", {"mcpServers": {"c": {"command": "x"}}})
    settings = load(home, {"mcpServersFile": "claude.json"})
    assert [spec.name for spec in settings.servers] == ["c"]
    assert settings.servers_file == other


def test_windows_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match=r"^Windows is not supported: .*$"):
        refuse_platform("win32")
    refuse_platform("linux")


def test_a_user_without_name_and_home_is_told_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number of its own."""
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(ConfigurationError, match="set HOME"):
        home_directory({"HOME": "not-absolute"})


def test_a_home_that_is_not_a_path_is_looked_up(home: Path) -> None:
    settings = load_settings({"HOME": "nonsense"})
    assert settings.home == Path(os.path.expanduser("~root" if os.getuid() == 0 else "~"))  # noqa: PTH111  the user database


def test_a_start_reads_settings_and_policy_without_the_readers_of_yaml_and_toml() -> None:
    code = (
        "import sys, ironcurtain_proxy.config.policy.policy_loading; "
        "sys.exit(bool({'yaml', 'tomllib', 'difflib'} & {*sys.modules}))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE).returncode == 0
    )
