"""`decide` on its own files, and on the recorded decisions of the original."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli.decide import Kernel, _written
from ironcurtain_proxy.config.policy.engine_file import load_engine
from tests import program
from tests.program import PROXY

CORPUS = Path(__file__).parents[3] / "shared" / "corpora" / "decisions"

POLICY = {
    "generatedAt": "2026-01-01T00:00:00Z",
    "constitutionHash": "0",
    "inputHash": "0",
    "rules": [
        {
            "name": "read-docs",
            "description": "d",
            "principle": "p",
            "if": {"paths": {"roles": ["read-path"], "within": "~/docs"}},
            "then": "allow",
            "reason": "documents may be read",
        },
        {
            "name": "ask-writes",
            "description": "d",
            "principle": "p",
            "if": {"roles": ["write-path"]},
            "then": "escalate",
            "reason": "writing needs a person",
        },
    ],
}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ANNOTATIONS = {
    "generatedAt": "2026-01-01T00:00:00Z",
    "servers": {
        "filesystem": {
            "inputHash": "0",
            "tools": [
                {
                    "toolName": tool,
                    "serverName": "filesystem",
                    "comment": "",
                    "args": {"path": [role]},
                    "inputSchema": SCHEMA,
                }
                for tool, role in (("read_file", "read-path"), ("write_file", "write-path"))
            ],
        }
    },
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "home" / "docs").mkdir(parents=True)
    home = str(tmp_path / "home")
    engine: dict[str, object] = {"allowedDirectory": None, "protectedPaths": [], "home": home}
    for name, content in (
        ("compiled-policy.json", POLICY),
        ("tool-annotations.json", ANNOTATIONS),
        ("engine.json", engine),
    ):
        (tmp_path / name).write_bytes(orjson.dumps(content))
    return tmp_path


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    return program.run([*PROXY, *arguments], os.environ, given=stdin)


def decide(directory: Path, *lines: bytes, extra: tuple[str, ...] = ()) -> list[dict[str, object]]:
    result = run("decide", "--dir", str(directory), *extra, stdin=b"\n".join(lines))
    assert result.stderr == ""
    return [orjson.loads(line) for line in result.stdout.encode().splitlines()]


def call(tool: str, arguments: object, identifier: object = 1) -> bytes:
    return orjson.dumps(
        {"id": identifier, "serverName": "filesystem", "toolName": tool, "arguments": arguments}
    )


def test_each_line_gets_its_decision_in_order(directory: Path) -> None:
    answers = decide(
        directory,
        call("read_file", {"path": "~/docs/a.txt"}, "a"),
        call("write_file", {"path": "~/docs/a.txt"}, "b"),
        call("read_file", {"path": "/etc/passwd"}, "c"),
        call("rename", {"path": "/etc/passwd"}, None),
    )
    assert [(a["id"], a["decision"], a["rule"]) for a in answers] == [
        ("a", "allow", "read-docs"),
        ("b", "escalate", "ask-writes"),
        ("c", "deny", "default-deny"),
        (None, "deny", "structural-unknown-tool"),
    ]
    assert answers[1]["escalatedRoles"] == ["write-path"]
    assert answers[0]["reason"] == "documents may be read"


def test_a_tool_that_nobody_described_is_asked_about_where_the_operator_says_so(
    directory: Path,
) -> None:
    engine = orjson.loads((directory / "engine.json").read_bytes())
    key = f"{directory}/home/.ssh"
    said = {**engine, "unknownTools": "ask", "protectedPaths": [key]}
    (directory / "engine.json").write_bytes(orjson.dumps(said))
    answers = decide(
        directory,
        call("rename", {"to": "x", "deep": [{"a": "y"}]}),
        call("rename", {}),
        call("rename", {"deep": [{"a": "~/.ssh/id"}]}),
        call("rename", {"to": "cat ~/.ssh/id"}),
        call("rename", {"to": "https://a@b\\\\.example/"}),
    )
    assert [(a["decision"], a["rule"]) for a in answers[:4]] == [
        ("escalate", "structural-unknown-tool"),
        ("escalate", "structural-unknown-tool"),
        ("deny", "structural-protected-path"),
        ("deny", "structural-protected-path"),
    ]
    assert answers[4]["decision"] == "deny"
    shown = run(
        "explain", "filesystem/rename", "--args", '{"to": "x"}', "--dir", str(directory), "--json"
    )
    explained = orjson.loads(shown.stdout)
    assert (explained["decision"], explained["rule"]) == ("escalate", "structural-unknown-tool")


def test_unknown_tools_is_one_of_two_words(directory: Path) -> None:
    (directory / "engine.json").write_bytes(orjson.dumps({"unknownTools": "allow"}))
    done = run("decide", "--dir", str(directory))
    assert done.returncode == 2
    assert "$.unknownTools" in done.stderr


@pytest.mark.requirement("C-21")
def test_arguments_are_held_to_the_schema_unless_told_otherwise(directory: Path) -> None:
    lines = (call("read_file", {"path": "~/docs/a", "mode": "x"}), call("read_file", {}))
    checked = decide(directory, *lines)
    assert [a["rule"] for a in checked] == ["invalid-arguments", "invalid-arguments"]
    assert checked[0]["reason"] == 'Unknown argument(s): "mode". Valid parameters are: "path"'
    unchecked = decide(directory, *lines, extra=("--no-schema",))
    assert [a["rule"] for a in unchecked] == ["read-docs", "default-deny"]


@pytest.mark.parametrize(
    "line",
    [b"nonsense", b"[]", b'{"toolName":"x"}', b'{"serverName":"a","toolName":"b","arguments":[]}'],
)
def test_a_line_that_is_no_call_is_denied_and_the_next_one_is_read(
    directory: Path, line: bytes
) -> None:
    result = run(
        "decide",
        "--dir",
        str(directory),
        stdin=line + b"\n" + call("read_file", {"path": "~/docs"}),
    )
    first, second = [orjson.loads(answer) for answer in result.stdout.splitlines()]
    assert (first["decision"], first["rule"]) == ("deny", "invalid-request")
    assert second["decision"] == "allow"
    assert result.returncode == 1


def hostile(tool: bytes = b"read_file", arguments: bytes = b"{}", extra: bytes = b"") -> bytes:
    head = b'{"serverName":"filesystem","toolName":"' + tool + b'","arguments":' + arguments
    return head + extra + b"}"


@pytest.mark.parametrize("name", ["path", "repo_path"])
def test_a_list_of_repositories_is_denied_by_the_name_of_its_argument(
    directory: Path, name: str
) -> None:
    tools = [
        {"toolName": "git_pull", "serverName": "git", "comment": "", "args": {name: ["read-path"]}}
    ]
    annotations = {**ANNOTATIONS, "servers": {"git": {"inputHash": "0", "tools": tools}}}
    (directory / "tool-annotations.json").write_bytes(orjson.dumps(annotations))
    line = {"serverName": "git", "toolName": "git_pull", "arguments": {name: [str(directory)]}}
    [answer] = decide(directory, orjson.dumps(line), extra=("--no-schema",))
    assert answer["decision"] == "deny"
    assert answer["reason"] == f'Argument "{name}" must be one path, not a list.'


HOSTILE = {
    "a deeply nested id": hostile(extra=b',"id":' + b"[" * 900 + b"]" * 900),
    "an object for an id": hostile(extra=b',"id":{"a":1}'),
    "nesting beyond any parser": b"[" * 100_000,
    "a deeply nested argument": hostile(arguments=b'{"path":' + b"[" * 900 + b"]" * 900 + b"}"),
    "a line of 65 MiB": hostile(arguments=b'{"path":"' + b"a" * (65 << 20) + b'"}'),
    "bytes that are no text": hostile(arguments=b'{"path":"\xff\xfe"}'),
    "half a character": hostile(arguments=b'{"path":"\\ud800"}'),
    "half a character in a name": hostile(tool=b"\\udfff"),
    "a name that is too long": hostile(arguments=b'{"path":"/' + b"a" * 300 + b'"}'),
    "a null byte": hostile(arguments=b'{"path":"/a\\u0000b"}'),
    "a number without end": hostile(arguments=b'{"path":' + b"9" * 5000 + b"}"),
}


@pytest.mark.parametrize("extra", [(), ("--no-schema",)], ids=["schema", "no schema"])
@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_every_line_is_answered_and_so_are_those_after_it(
    directory: Path, line: bytes, extra: tuple[str, ...]
) -> None:
    answers = decide(directory, line, call("read_file", {"path": "~/docs"}, "next"), extra=extra)
    first, second = answers
    assert first["decision"] == "deny"
    assert first["reason"]
    assert (second["id"], second["decision"]) == ("next", "allow")


def test_a_fault_of_the_kernel_denies_its_line_alone(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    kernel = Kernel.of(load_engine(directory, directory / "home"), check_schemas=True)
    monkeypatch.setattr(Kernel, "decide", lambda *_: 1 // 0)
    answer, understood = _written(kernel, call("read_file", {"path": "~/docs"}, "a"))
    document = orjson.loads(answer)
    assert (document["id"], document["decision"], understood) == ("a", "deny", False)
    assert "ZeroDivisionError" in document["reason"]


@pytest.mark.requirement("C-24", "C-25")
@pytest.mark.parametrize("effect", ["block", "Deny", "", None])
def test_a_policy_with_an_unknown_effect_is_refused(directory: Path, effect: str | None) -> None:
    """G1."""
    broken = orjson.loads(orjson.dumps(POLICY))
    broken["rules"][1]["then"] = effect
    (directory / "compiled-policy.json").write_bytes(orjson.dumps(broken))
    result = run("decide", "--dir", str(directory), stdin=call("read_file", {"path": "~/docs"}))
    assert result.returncode == 2
    assert result.stdout == ""
    assert "rules[1].then" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_directory_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    result = run("decide", "--dir", str(tmp_path / "missing"))
    assert result.returncode == 2
    assert "missing" in result.stderr
    assert "Traceback" not in result.stderr


STRICTER = {"d-05646", "d-00608", "d-01762"}
"""Rows whose git remote is a number or a truth: the original lets it name nothing."""
CLOSED_HOLES = frozenset(
    f"d-{row}"
    for row in (
        *("03419", "03947", "05053", "04544", "01699", "04761", "02876", "00029"),
        *("05207", "02133", "05525", "05548", "02570", "05812", "00767", "00902"),
        *("04195", "00031", "03103", "05856", "04857", "03813"),
    )
)
"""Rows that differ on purpose. Closed hole: a git server's repository was named by a list, of which
the first item was judged and any could have been used. Each is denied now."""


@pytest.mark.timeout(300)
@pytest.mark.requirement("C-19", "C-20", "C-22", "C-23", "C-24", "C-26", "C-27", "C-28", "C-29")
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded decisions are not beside the project")
def test_every_recorded_decision_of_the_original_is_met_or_safer() -> None:
    """G2 G3 G4 G5 G8 G9 G11 G21 G22: 6,492 decisions by rule, and 149 where the original errs."""
    started = program.starting_with("ironcurtain_proxy.cli.decide")
    words = [*started, "ironcurtain_proxy", "decide", "--no-schema", "--dir"]
    command = f"{shlex.join(words)} {{config_dir}}"
    arguments = ("--roles", "--show", "100", "--cmd", command)
    result = subprocess.run(
        [sys.executable, str(CORPUS / "check_decisions.py"), *arguments],
        capture_output=True,
        check=False,
        timeout=280,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    shown = result.stdout.decode()
    others = dict(re.findall(r"^(d-\d+) .*\n.*\n +got +(.*)$", shown, re.MULTILINE))
    assert others.keys() == CLOSED_HOLES | STRICTER, shown[-3000:]
    assert {others[row] for row in STRICTER} == {"deny by invalid-arguments"}
    assert "agree 6467/6492, divergence safe 149/149" in shown
