"""`policy suggest`, as a person runs it: rules from recorded questions, and what they leave out."""

import shlex
from pathlib import Path
from typing import TypedDict

import orjson
import pytest

from tests import program
from tests.cli.test_policy import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


class Rule(TypedDict):
    spared: int
    command: str


class Said(TypedDict):
    questions: int
    suggestions: list[Rule]
    unusedRules: list[str]


def asked(tool: str, arguments: object, *, server: str = "filesystem", ok: bool = True) -> object:
    return {
        "serverName": server,
        "toolName": tool,
        "arguments": arguments,
        "requestId": "1",
        "policyDecision": {"status": "escalate", "rule": "r", "reason": ""},
        "escalationResult": "approved" if ok else "denied",
        "decidedBy": "human",
    }


def suggestions(place: Place, *words: str) -> Said:
    done = place.run("suggest", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: Said = orjson.loads(done.stdout)
    return found


def test_one_rule_on_the_narrowest_common_directory_spares_all_its_questions(place: Place) -> None:
    notes = place.home / "docs/notes"
    place.record(
        *[asked("read_file", {"path": str(notes / f"{n}.txt")}) for n in range(3)],
        asked("read_file", {"path": str(notes / "deep/er.txt")}),
        asked("fetch", {"url": "https://docs.rs/a"}, server="fetch"),
        asked("fetch", {"url": "https://docs.rs/b"}, server="fetch"),
        asked("fetch", {"url": "https://once.example/"}, server="fetch"),
    )
    found = suggestions(place)
    commands = [(one["spared"], one["command"]) for one in found["suggestions"]]
    assert commands == [
        (4, f"ironcurtain-proxy policy allow filesystem/read_file --path {notes}"),
        (2, "ironcurtain-proxy policy allow fetch/fetch --host docs.rs"),
    ]
    assert found["questions"] == 7


def test_no_rule_allows_what_a_person_denied_or_a_file_with_secrets(place: Place) -> None:
    docs = place.home / "docs"
    place.record(
        *[asked("read_file", {"path": str(docs / "a" / f"{n}.txt")}) for n in range(3)],
        asked("read_file", {"path": str(docs / "b.txt")}, ok=False),
        *[asked("read_file", {"path": str(docs / "a/.env")})] * 5,
    )
    (only,) = suggestions(place)["suggestions"]
    assert only["spared"] == 3
    assert only["command"].endswith(f"--path {docs}/a")


def test_kinds_that_are_always_asked_about_get_no_rule(place: Place) -> None:
    place.record(
        *[asked("fetch", {"url": "https://*.org/a"}, server="fetch")] * 9,
        *[asked("fetch", {"url": "@news"}, server="fetch")] * 9,
        *[asked("fetch", {"url": "https://localhost:8080/"}, server="fetch")] * 9,
        *[asked("git_push", {"repo_path": ".", "remote": "origin"}, server="git")] * 9,
        *[asked("delete_entities", {"entityNames": ["a"]}, server="memory")] * 9,
        *[asked("move_file", {"source": "/srv/d/x", "destination": "/srv/d/y"})] * 9,
        *[
            asked("write_file", {"path": path.replace("~", str(place.home)), "content": "x"})
            for path in (
                *("~/.bashrc", "~/.config/autostart/x.desktop", "~/.local/bin/ls", "~/bin/x"),
                *("/etc/cron.d/x", "/usr/local/bin/x", "/opt/app/run.sh", "/var/spool/cron/me"),
                *("~/other/.github/workflows/x.yml", "~/other/.envrc", "~/other/flake.nix"),
                *("~/notes/\u202egpj.sh", "~/work/.husky/pre-commit"),
            )
            for _ in range(9)
        ],
        *[asked("read_file", {"path": "/srv/a\u202eb/c"})] * 9,
    )
    found = suggestions(place)
    assert found["suggestions"] == []


def test_questions_in_the_workspace_open_nothing_outside_of_it(place: Place) -> None:
    place.file.parent.mkdir()
    place.file.write_text("ask filesystem: [write_file, read_file]\n")
    place.record(
        *[asked("write_file", {"path": str(place.work / "a.txt"), "content": "x"})] * 3,
        *[asked("read_file", {"path": str(place.work / "deep/er" / name)}) for name in "ab"],
        asked("read_file", {"path": str(place.work / "deep/c")}),
    )
    commands = {one["command"].partition("/")[2] for one in suggestions(place)["suggestions"]}
    assert commands == {f"write_file --path {place.work}", f"read_file --path {place.work}/deep"}


def test_what_was_suggested_is_written_only_after_a_yes_and_spares_the_question(
    place: Place,
) -> None:
    path = str(place.home / "docs/notes/a.txt")
    place.record(*[asked("read_file", {"path": path})] * 2)

    def apply(answer: bytes) -> str:
        done = place.run("suggest", "--apply", given=answer)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "+allow filesystem: {tools: read_file" in apply(b"")
    assert not place.file.exists()
    assert "written" in apply(b"y\n")
    assert 'except: "@secrets"' in place.file.read_text()
    assert suggestions(place)["questions"] == 0


def test_rules_and_tools_that_were_never_used_are_named(place: Place) -> None:
    place.run("deny", "time/convert_time")
    place.record(asked("fetch", {"url": "https://a.org"}, server="fetch"))
    found = suggestions(place)
    assert found["unusedRules"] == ["deny-time-convert_time"]


def test_the_command_that_explain_offers_allows_the_call_and_keeps_secrets_closed(
    place: Place,
) -> None:
    notes = place.home / "docs"
    notes.mkdir()

    def explained(name: str) -> tuple[str, str]:
        said = orjson.dumps({"path": str(notes / name)}).decode()
        environ = {"HOME": str(place.home), "ALLOWED_DIRECTORY": str(place.work)}
        words = ("explain", "filesystem/read_file", "--args", said, "--json")
        done = program.run([*program.PROXY, *words], environ)
        assert done.returncode == 0, done.stderr
        found = orjson.loads(done.stdout)
        return found["decision"], found["command"] or ""

    decision, command = explained("a.txt")
    assert decision == "escalate"
    own, policy, *words = shlex.split(command)
    assert (own, policy) == ("ironcurtain-proxy", "policy")
    assert place.run(*words).returncode == 0
    assert explained("other.txt") == ("allow", "")
    assert explained(".env")[0] == "escalate"
    assert place.run(*words, "--secrets").returncode == 0
    assert explained(".env")[0] == "allow"
