"""`policy`: show, change, test, replay and export, as a person runs them."""

import os
import subprocess
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli.policy_change import write_policy
from ironcurtain_proxy.config.policy.proposing import with_rule
from ironcurtain_proxy.errors import ConfigurationError
from tests import program
from tests.tables import table


class Place:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir()
        self.file = home / ".ironcurtain/policy.yaml"
        self.log = home / ".ironcurtain/audit.jsonl"

    def run(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[str]:
        environ = {"HOME": str(self.home), "ALLOWED_DIRECTORY": str(self.work)}
        environ["PATH"] = os.environ["PATH"]
        return program.run([*program.PROXY, "policy", *words], environ, given=given)

    def record(self, *lines: object) -> None:
        self.log.parent.mkdir(exist_ok=True)
        self.log.write_bytes(b"".join([orjson.dumps(line) + b"\n" for line in lines]))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def test_a_rule_is_shown_before_it_is_written_and_comes_first(place: Place) -> None:
    tried = place.run("deny", "time/convert_time", "--dry-run")
    assert "+deny time: convert_time" in tried.stdout
    assert "allow by allow-time" in tried.stdout
    assert not place.file.exists()
    assert place.run("deny", "time/convert_time").returncode == 0
    assert place.file.read_text() == "deny time: convert_time\n"
    assert place.run("allow", "fetch/fetch", "--host", "docs.rs").returncode == 0
    shown = orjson.loads(place.run("show", "--json").stdout)
    names = [(rule["layer"], rule["name"]) for rule in shown["rules"]]
    assert names[:2] == [("user", "allow-fetch-fetch"), ("user", "deny-time-convert_time")]
    assert names[2][0] == "shipped"


def test_a_path_is_meant_from_where_the_command_is_given_and_a_rule_is_written_once(
    place: Place,
) -> None:
    words = ("allow", "filesystem/read_text_file", "--path", "notes/../plans")
    assert place.run(*words).returncode == 0
    written = place.file.read_text()
    assert f"within: {Path.cwd() / 'plans'}" in written
    assert "the first rule already: nothing was written" in place.run(*words).stdout
    assert place.file.read_text() == written


def test_a_rule_for_a_server_that_is_not_configured_is_written_with_a_warning(place: Place) -> None:
    place.file.parent.mkdir()
    servers = {"mcpServers": {"notes": {"command": "x"}}}
    (place.file.parent / "config.json").write_bytes(orjson.dumps(servers))
    said = place.run("ask", "note/*").stdout
    assert 'warning: there is no server "note"; there are: notes' in said
    assert "warning: there is no server" not in place.run("ask", "notes/*").stdout


def test_an_allowed_directory_takes_nothing_from_the_questions_about_secrets(place: Place) -> None:
    changed = place.run("allow", "filesystem/read_text_file", "--path", "~/notes", "--dry-run")
    assert "takes precedence over: ask by escalate-read-outside-workspace" in changed.stdout
    assert "escalate-read-secret-file" not in changed.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fetch/fetch", "--path", "~/notes"), "url (fetch-url)"),
        (("fetch/fetch", "--path", "~/notes"), "; --host limits them"),
        (("fetch/*", "--path", "~/notes"), "no argument of a tool of fetch is a path"),
        (("time/convert_time", "--host", "docs.rs"), "time/convert_time is a URL"),
        (("filesystem/read_text_file", "--sql", "reads"), "; --path limits them"),
    ],
)
def test_a_condition_on_an_argument_that_no_such_tool_has_is_refused(
    place: Place, words: tuple[str, ...], said: str
) -> None:
    refused = place.run("allow", *words)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert "would never hold" in refused.stderr
    assert not place.file.exists()


def test_a_condition_on_a_tool_that_nobody_annotated_is_written_with_a_warning(
    place: Place,
) -> None:
    done = place.run("allow", "fetch/fetched", "--path", "~/notes")
    assert done.returncode == 0
    assert 'warning: tool "fetched" has no annotation' in done.stdout


def test_a_rule_about_hosts_is_compared_with_rules_about_hosts_alone(place: Place) -> None:
    said = place.run("allow", "fetch/fetch", "--host", "docs.rs", "--dry-run").stdout
    assert "takes precedence over: ask by escalate-fetch" in said
    assert "secret" not in said
    said = place.run("allow", "filesystem/read_text_file", "--secrets", "--dry-run").stdout
    assert said.count("this opens files that usually hold secrets, too") == 1


def test_each_of_many_allowed_tools_gets_its_rule(place: Place) -> None:
    tools = ["time/convert_time", "fetch/fetch", "time/get_current_time", "git/git_log"] * 2
    for tool in tools:
        done = place.run("allow", tool)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    table("cli/policy.a_rule_is_added_where", list[tuple[str, str]]),
)
def test_a_rule_is_added_where_it_is_asked_first_and_nothing_else_changes(
    text: str, expected: str
) -> None:
    assert with_rule(text, "allow", "s", "t", []) == expected


def test_a_name_that_yaml_would_read_otherwise_is_quoted_and_a_full_file_is_left() -> None:
    assert with_rule("", "ask", "s", "no", []) == 'ask s: "no"\n'
    assert with_rule("", "ask", "s", "*", [("within", ["/a b"])]) == (
        'ask s: {tools: "*", within: "/a b"}\n'
    )
    with pytest.raises(ConfigurationError, match="put this first"):
        with_rule("ask s: y\nallow s: a\nallow: {x: y}\n", "allow", "s", "t", [])


def test_scenarios_that_are_not_met_fail(place: Place) -> None:
    scenarios = place.home / "s.yaml"
    good = "- {call: time/get_current_time, args: {timezone: UTC}, expect: allow}\n"
    scenarios.write_text(good)
    assert place.run("test", str(scenarios)).returncode == 0
    scenarios.write_text(good + "- {call: fetch/fetch, args: {url: 'https://x.org'}, expect: deny}")
    failed = place.run("test", str(scenarios))
    assert failed.returncode == 1
    assert "expected deny; ask by escalate-fetch" in failed.stdout
    scenarios.write_text("- {call: time/get_current_time, expect: maybe}")
    refused = place.run("test", str(scenarios))
    assert refused.returncode == 2
    assert "line 1, column" in refused.stderr
    # A test of no scenario would pass.
    scenarios.write_text('{"allowedDirectory": "/home/me/project"}')
    wrong_file = place.run("test", str(scenarios))
    assert (wrong_file.returncode, wrong_file.stdout) == (2, "")
    assert "must be a list" in wrong_file.stderr


def call(tool: str, arguments: object, server: str = "time") -> dict[str, object]:
    return {"serverName": server, "toolName": tool, "arguments": arguments, "requestId": "1"}


def test_recorded_calls_are_replayed_and_what_cannot_be_is_counted(place: Place) -> None:
    utc = {"timezone": "UTC"}
    place.record(
        call("get_current_time", utc),
        call("get_current_time", utc),
        {**call("get_current_time", utc), "phase": "intent"},
        call("get_current_time", {"timezone": "[redacted]"}),
        {**call("get_current_time", {}), "argumentsDigest": {"size": 9}},
        call("\x1b[2Jx", {}, server="gone"),
        call("policy_change", {}, server="ironcurtain"),
        [1],
    )
    candidate = place.home / "c.yaml"
    candidate.write_text("deny time: '*'\n")
    done = place.run("replay", "--candidate", str(candidate))
    assert done.returncode == 0, done.stderr
    assert "2 x time/get_current_time" in done.stdout
    assert "allow by allow-time → deny by deny-time" in done.stdout
    assert "2 of 5 recorded calls replayed; 2 decided differently" in done.stdout
    for why in ("an argument is masked", "an argument is cut", "no such server", "is no record"):
        assert f"1 not replayed: {why}" in done.stdout or why in done.stdout
    assert "\x1b" not in done.stdout


def test_the_shipped_files_are_exported_and_nothing_is_overwritten(place: Place) -> None:
    target = place.home / "out"
    assert place.run("export", str(target)).returncode == 0
    assert (target / "compiled-policy.json").exists()
    again = place.run("export", str(target))
    assert again.returncode == 2
    assert again.stderr.endswith(": File exists\n")


def test_a_policy_that_was_changed_since_it_was_read_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("deny a: b\n")
    with pytest.raises(ConfigurationError, match="changed meanwhile"):
        write_policy(file, "", "allow a: b\n")
    assert file.read_text() == "deny a: b\n"
    write_policy(file, "deny a: b\n", "ask a: b\n")
    assert file.read_text() == "ask a: b\n"


def test_a_rule_that_needs_signatures_says_so_in_words(place: Place) -> None:
    place.file.parent.mkdir()
    place.file.write_text("ask git:\n  - tools: git_push\n    quorum: 2\n    signers: security\n")
    shown = place.run("show").stdout
    assert "ask    git/git_push needs 2 signatures of security  (" in shown
