"""Rules that say nothing."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.config.policy.annotations_file import read_annotations_file
from ironcurtain_proxy.config.policy.lint import lint_rules
from ironcurtain_proxy.config.policy.policy_file import PolicyReader
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.values import Json
from tests.config.files import policy, said, write
from tests.tables import table

TOOLS: Mapping[str, Mapping[str, Json]] = {
    "filesystem": {
        "read_file": {"path": ["read-path"]},
        "move_file": {"source": ["read-path", "delete-path"], "destination": ["write-path"]},
        "info": {},
    },
    "mail": {"send": {"to": ["email-address"], "body": ["email-body"]}},
    "hub": {"issue": {"owner": ["github-owner"], "repo": ["github-repo"]}},
    "git": {
        "branch": {
            "path": {
                "default": ["read-path", "write-history"],
                "when": [{"condition": {"arg": "mode", "equals": "list"}, "roles": ["none"]}],
            },
            "mode": ["none"],
            "message": ["commit-message"],
        }
    },
}


@pytest.fixture
def annotations(tmp_path: Path) -> Annotations:
    document: Json = {
        "servers": {
            server: {"tools": [{"toolName": tool, "args": args} for tool, args in tools.items()]}
            for server, tools in TOOLS.items()
        }
    }
    file = read_annotations_file(write(tmp_path / "a.json", document), Report())
    assert file is not None
    return file.annotations


def lint(
    path: Path, annotations: Annotations, *conditions: Json, then: str = "escalate"
) -> list[str]:
    rules: list[Json] = [
        {"name": f"r{index}", "if": condition, "then": then}
        for index, condition in enumerate(conditions)
    ]
    report = Report()
    file = PolicyReader(home=Path("/h"), report=report).read(write(path / "p.json", policy(*rules)))
    assert file is not None
    assert report.problems == ()
    lint_rules(file.rules, annotations, file.places, report)
    assert not report.has_errors
    return said(report)


DIFFERENT = "its conditions are about different roles, and a rule is asked about one at a time"
NEVER = '$.rules[0].if: rule "r0" can never match: '


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (
            {"server": ["filesytem"]},
            '$.rules[0].if.server: "filesytem" is not a server with annotations [filesystem]',
        ),
        (
            {"tool": ["read_fil"]},
            '$.rules[0].if.tool: "read_fil" is not an annotated tool of these servers [read_file]',
        ),
        (
            {"server": ["hub"], "tool": ["read_file"]},
            '$.rules[0].if.tool: "read_file" is not an annotated tool of these servers',
        ),
        ({"roles": []}, "$.rules[0].if.roles: is empty: the rule can never match"),
        (
            {"domains": {"roles": ["fetch-url"], "allowed": []}},
            "$.rules[0].if.domains.allowed: is empty: the rule can never match",
        ),
        (
            {"server": ["hub"], "roles": ["read-path"]},
            NEVER + "no such tool has an argument of role read-path",
        ),
        (
            {
                "server": ["git"],
                "roles": ["commit-message"],
                "paths": {"roles": ["read-path"], "within": "/x"},
            },
            NEVER + DIFFERENT,
        ),
        (
            {"roles": ["read-path"], "paths": {"roles": ["write-path"], "within": "/x"}},
            NEVER + DIFFERENT,
        ),
        (
            {"server": ["filesystem"], "domains": {"roles": ["fetch-url"], "allowed": ["x.com"]}},
            NEVER + "no such tool has an argument of role fetch-url",
        ),
    ],
    ids=str,
)
def test_a_rule_that_can_never_match_is_pointed_out(
    condition: Json, problem: str, tmp_path: Path, annotations: Annotations
) -> None:
    assert lint(tmp_path, annotations, condition) == [problem]


@pytest.mark.parametrize(
    "condition",
    table("config/policy/lint.a_rule_that_can_match_is_left_alone", list[dict[str, Json]]),
    ids=str,
)
def test_a_rule_that_can_match_is_left_alone(
    condition: dict[str, Json], tmp_path: Path, annotations: Annotations
) -> None:
    if condition.get("server") == ["hub"]:
        # Asked about the owner, it looks at the repository too; but then the list must be about it.
        condition = {**condition, "roles": ["github-owner", "github-repo"]}
    assert lint(tmp_path, annotations, condition) == []


def test_an_allow_rule_that_names_tools_and_no_paths_is_pointed_out(
    tmp_path: Path, annotations: Annotations
) -> None:
    named: dict[str, Json] = {"server": ["filesystem"], "tool": ["info", "read_file"]}
    what = 'rule "r0" lets read_file reach every path that is not protected'
    assert lint(tmp_path, annotations, named, then="allow") == [
        f"$.rules[0].if: {what}: name paths, or run `init --undo` and `init`"
    ]
    within: dict[str, Json] = {"paths": {"roles": ["read-path"], "within": "/x"}}
    pathless: dict[str, Json] = {"tool": ["info"]}
    for narrower in (within, pathless):
        assert lint(tmp_path, annotations, {**named, **narrower}, then="allow") == []
    assert lint(tmp_path, annotations, named) == []


def test_an_allow_rule_for_tools_of_files_that_lets_one_upload_is_pointed_out(
    tmp_path: Path, annotations: Annotations
) -> None:
    key, other = ("hub", "upload"), annotations[("filesystem", "read_file")]
    given = {**annotations, key: replace(other, server="hub", tool="upload", effect="sends")}
    within: Json = {"roles": ["read-path"], "within": "/x"}
    both: dict[str, Json] = {"tool": ["read_file", "upload"], "paths": within}
    what = 'rule "r0" lets upload send files that other tools only read: leave it out'
    assert lint(tmp_path, given, both, then="allow") == [
        f"$.rules[0].if: {what}, or run `init --undo` and `init`"
    ]
    assert lint(tmp_path, given, {**both, "tool": ["upload"]}, then="allow") == []
    assert lint(tmp_path, given, both) == []


def test_an_allow_rule_without_conditions_is_pointed_out(
    tmp_path: Path, annotations: Annotations
) -> None:
    """G1: it is legal, and rarely meant."""
    assert lint(tmp_path, annotations, {}, then="allow") == [
        '$.rules[0].if: rule "r0" has no condition: it allows every call'
    ]
    assert lint(tmp_path, annotations, {}, then="deny") == []


READ: dict[str, Json] = {"server": ["filesystem"], "roles": ["read-path"]}
SHADOWED = table("config/policy/lint.shadowed", list[tuple[str, list[dict[str, Json]]]])
NOT_SHADOWED = table("config/policy/lint.not_shadowed", list[tuple[str, list[dict[str, Json]]]])


@pytest.mark.parametrize("conditions", [case[1] for case in SHADOWED], ids=[c[0] for c in SHADOWED])
def test_a_rule_that_is_never_reached_is_pointed_out(
    conditions: list[Json], tmp_path: Path, annotations: Annotations
) -> None:
    problems = lint(tmp_path, annotations, *conditions)
    assert len(problems) == 1
    assert f'rule "r{len(conditions) - 1}" is never reached' in problems[0]


@pytest.mark.parametrize(
    "conditions", [case[1] for case in NOT_SHADOWED], ids=[c[0] for c in NOT_SHADOWED]
)
def test_a_rule_that_still_has_something_to_say_is_left_alone(
    conditions: list[Json], tmp_path: Path, annotations: Annotations
) -> None:
    assert lint(tmp_path, annotations, *conditions) == []


def test_a_rule_that_asks_nobody_keeps_nothing_from_containment(
    tmp_path: Path, annotations: Annotations
) -> None:
    report = Report()
    rules: list[Json] = [
        {"name": "a", "if": {"server": ["mail"]}, "then": "deny", "contained": False},
        {"name": "b", "if": {"server": ["git"]}, "then": "escalate", "contained": False},
    ]
    reader = PolicyReader(home=Path("/h"), report=report)
    file = reader.read(write(tmp_path / "p.json", policy(*rules)))
    assert file is not None
    assert [rule.contained for rule in file.rules] == [False, False]
    lint_rules(file.rules, annotations, file.places, report)
    assert [problem.message for problem in report.problems] == [
        'rule "a" asks nobody: contained counts in rules that escalate'
    ]
