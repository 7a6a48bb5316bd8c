"""Annotations against themselves and against live tools."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.config.policy.lint import (
    LiveTools,
    lint_annotations,
    lint_live,
    lint_servers,
)
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.model.annotation import (
    ArgumentRole,
    Equals,
    RoleCase,
    RoleSpec,
    ToolAnnotation,
)
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition
from ironcurtain_proxy.model.values import Json

SCHEMA: dict[str, Json] = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = ToolAnnotation(
    server="filesystem",
    tool="read_file",
    arguments={"path": RoleSpec(default=("read-path",))},
    input_schema=SCHEMA,
)
NOBODY = (
    "has no annotation: every call is denied, or asked about (unknownTools). Run "
    "`ironcurtain-proxy annotate files`"
)
FILES = ServerSpec(name="files", annotations="filesystem", command="x")


def live(**schemas: Json) -> list[str]:
    report = Report()
    definitions = tuple(
        [
            ToolDefinition("files", name, {"name": name, "inputSchema": schema})
            for name, schema in schemas.items()
        ]
    )
    tools = LiveTools(definitions, frozenset({"files"}))
    lint_live({("filesystem", "read_file"): READ}, tools, [FILES], report)
    assert not report.has_errors
    return [str(problem) for problem in report.problems]


def test_annotations_that_fit_are_left_alone() -> None:
    assert live(read_file=SCHEMA) == []


def test_an_annotation_that_hooks_use_is_not_missed_at_a_server_of_that_name() -> None:
    report, known = Report(), {("filesystem", "read_file"): READ}
    silent = LiveTools((), frozenset({"files"}))
    lint_live(known, silent, [FILES], report, (), {("filesystem", "read_file")})
    assert not report.problems


@pytest.mark.parametrize(
    ("schemas", "problem"),
    [
        ({}, "files/read_file: is annotated, but the server does not offer it"),
        (
            {"read_file": SCHEMA, "read_files": SCHEMA},
            f'files/read_files: {NOBODY} (did you mean "read_file"?)',
        ),
        ({"read_file": SCHEMA, "write_file": SCHEMA}, f"files/write_file: {NOBODY}"),
        (
            {"read_file": {"properties": {"path": {}, "follow": {}}}},
            'files/read_file: argument "follow" is not annotated: calls that use it are denied',
        ),
        (
            {"read_file": {"properties": {"paths": {}, "path": {}}}},
            'files/read_file: argument "paths" is not annotated: calls that use it are denied',
        ),
        (
            {"read_file": {"properties": {}}},
            'files/read_file: argument "path" is annotated, but the tool no longer has it',
        ),
        (
            {"read_file": {"properties": {"path": {"type": "array"}}}},
            (
                "files/read_file: its input schema has changed since it was annotated: "
                "look at its roles again with `ironcurtain-proxy annotate`"
            ),
        ),
        (
            {"read_file": None},
            'files/read_file: argument "path" is annotated, but the tool no longer has it',
        ),
    ],
    ids=str,
)
def test_annotations_that_no_longer_fit_are_pointed_out(
    schemas: dict[str, Json], problem: str
) -> None:
    assert live(**schemas) == [problem]


@pytest.mark.parametrize(
    ("role", "cwd", "trusted", "is_said"),
    [
        ("none", None, (), True),
        ("read-path", None, (), False),
        ("none", "/work", (), False),
        (None, None, (), False),
        (None, None, ("filesystem",), True),
    ],
)
def test_an_argument_that_may_be_a_relative_path_and_is_sent_as_it_is_is_pointed_out_once(
    role: ArgumentRole | None, cwd: str | None, trusted: tuple[str, ...], is_said: bool
) -> None:
    report = Report()
    schema: Json = {"type": "object", "properties": {"path": {"type": "string"}}}
    names = ("read_file", "stat_file")
    tools = tuple(ToolDefinition("files", n, {"name": n, "inputSchema": schema}) for n in names)
    known = {
        ("filesystem", name): ToolAnnotation(
            server="filesystem", tool=name, arguments={"path": RoleSpec(default=(role,))}
        )
        for name in names
        if role is not None
    }
    server = replace(FILES, cwd=cwd)
    lint_live(known, LiveTools(tools, frozenset({"files"})), [server], report, trusted)
    said = [str(one) for one in report.problems if '"cwd": "@workspace"' in str(one)]
    assert len(said) == int(is_said)


def test_a_relative_path_beside_an_argument_that_says_where_it_begins_is_not_pointed_out() -> None:
    report = Report()
    text: Json = {"type": "string"}
    schema: Json = {"type": "object", "properties": {"repo_path": text, "files": text}}
    tools = (ToolDefinition("files", "add", {"name": "add", "inputSchema": schema}),)
    roles: dict[str, RoleSpec] = {
        "repo_path": RoleSpec(default=("write-path",)),
        "files": RoleSpec(default=("none",)),
    }
    known = {
        ("filesystem", "add"): ToolAnnotation(server="filesystem", tool="add", arguments=roles)
    }
    lint_live(known, LiveTools(tools, frozenset({"files"})), [FILES], report, ())
    assert not [one for one in report.problems if '"cwd": "@workspace"' in str(one)]


def test_a_server_that_did_not_answer_is_not_compared() -> None:
    report = Report()
    lint_live({("filesystem", "read_file"): READ}, LiveTools((), frozenset()), [FILES], report)
    advice = "`--seconds 60` waits longer"
    assert [str(p) for p in report.problems] == [
        f'server "files": did not answer: not compared ({advice})'
    ]


def test_why_a_server_did_not_answer_is_said_if_it_is_known() -> None:
    report = Report()
    silent = {"files": "it ended with status 127"}
    lint_live({}, LiveTools((), frozenset(), silent), [FILES], report)
    (problem,) = report.problems
    assert str(problem).endswith("did not answer: not compared (it ended with status 127)")
    assert problem.severity == "error"


def test_a_case_that_says_more_than_the_default_is_pointed_out() -> None:
    case = RoleCase(condition=Equals(argument="x", value=1), roles=("write-path", "none"))
    spec = RoleSpec(default=("read-path",), cases=(case,))
    tool = ToolAnnotation(server="s", tool="t", arguments={"a": spec})
    report = Report()
    lint_annotations({("s", "r"): READ, ("s", "t"): tool}, "a.json", report)
    assert [str(p) for p in report.problems] == [
        "a.json: $.servers.s.tools[1].args.a: a case has roles that the default lacks: write-path"
    ]


def test_a_server_without_annotated_tools_is_pointed_out() -> None:
    report = Report()
    server = ServerSpec(name="x", annotations="filesytem", command="x")
    lint_servers({("filesystem", "read_file"): READ}, [server, FILES], "a.json", report)
    assert [str(p) for p in report.problems] == [
        (
            'a.json: server "x" has no annotated tool: every call is denied, or asked about '
            "(unknownTools). Run `ironcurtain-proxy annotate x` "
            '(did you mean "filesystem"?)'
        )
    ]
