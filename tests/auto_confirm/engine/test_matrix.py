"""The document's table, cell by cell, written out as data."""

from typing import Final

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction, Party, SessionType
from ironcurtain_proxy.auto_confirm.engine.settings import (
    GIT_PUSH_MAIN,
    MATRIX,
    ROWS,
    Row,
    SafetyRule,
    may_review,
)
from tests.auto_confirm.engine import calls

COLUMNS: Final[tuple[SessionType, ...]] = ("worker", "manager", "architect", "high-level")
TABLE: Final = """
B-71 | File edit in /tmp/       | ✓ ✓ ✓ ✓ | LOW      | Auto-approve
B-72 | File edit in project dir | ✓ ✓ ✓ ✓ | LOW      | Auto-approve
B-73 | File delete              | ✗ ~ ✓ ✓ | HIGH     | Escalate
B-74 | File read (public)       | ✓ ✓ ✓ ✓ | LOW      | Auto-approve
B-75 | Git pull/fetch           | ✓ ✓ ✓ ✓ | LOW      | Auto-approve
B-76 | Git commit to feature/*  | ✓ ✓ ✓ ✓ | LOW      | Auto-approve
B-77 | Git push to feature/*    | ~ ✓ ✓ ✓ | MED      | Conditional
B-78 | Git commit to main       | ✗ ~ ✓ ✓ | HIGH     | Escalate
B-79 | Git push --force         | ✗ ✗ ✓ ✓ | CRITICAL | Escalate + Alert
B-80 | Shell exec (safe)        | ✓ ✓ ✓ ✓ | LOW      | Auto-approve
B-81 | Shell exec (rm)          | ✗ ~ ✓ ✓ | HIGH     | Escalate
B-82 | Shell exec (dd, mount)   | ✗ ✗ ✓ ✓ | CRITICAL | Escalate + Alert
B-83 | Install dependencies     | ✓ ✓ ✓ ✓ | MED      | Auto-approve
B-84 | Test execution           | ✓ ✓ ✓ ✓ | LOW      | Auto-approve
B-85 | Deploy to prod           | ✗ ~ ✓ ✓ | CRITICAL | Escalate + Alert
"""
LINES: Final = [[field.strip() for field in line.split("|")] for line in TABLE.strip().splitlines()]
CELLS: Final = [
    pytest.param(
        (name, level, action, cell, column),
        id=f"{name}-{column}",
        marks=pytest.mark.requirement(requirement, "B-86"),
    )
    for requirement, name, cells, level, action in LINES
    for column, cell in zip(COLUMNS, cells.split(), strict=True)
]
MAIN: Final = "main"
EXAMPLES: Final[dict[str, Interaction]] = {
    "File edit in /tmp/": calls.edit("/tmp/a"),
    "File edit in project dir": calls.edit("/srv/project/a"),
    "File delete": calls.delete(),
    "File read (public)": calls.read("/srv/project/a"),
    "Git pull/fetch": calls.git("git_pull"),
    "Git commit to feature/*": calls.git("git_commit", message="m"),
    "Git push to feature/*": calls.push(branch="feature/x"),
    "Git commit to main": replace(calls.git("git_commit", message="m"), branch=MAIN),
    "Git push --force": replace(calls.push(), arguments={"force": True}),
    "Shell exec (safe)": calls.shell("safe", "ls"),
    "Shell exec (rm)": calls.shell("rm", "rm a"),
    "Shell exec (dd, mount)": calls.shell("dd", "dd if=a of=b"),
    "Install dependencies": replace(calls.shell("install", "npm ci"), sandboxed=True),
    "Test execution": calls.shell("test", "pytest"),
    "Deploy to prod": calls.shell("deploy", "make ship"),
}


BY_NAME: Final = frozenset({"Install dependencies", "Test execution"})
"""Operations that only the name of a command says: a reviewer is asked about them."""


def expected_word(level: str, cell: str) -> str:
    """What R-4 says of a cell, for the one who asks."""
    if level in {"HIGH", "CRITICAL"}:
        return "escalate"
    return {"✓": "approve", "~": "evaluate", "✗": "escalate"}[cell]


def test_the_table_has_sixty_cells() -> None:
    assert len(CELLS) == 60
    assert [row.name for row in MATRIX] == [line[1] for line in LINES]


@pytest.mark.parametrize("line", CELLS)
def test_a_cell_is_as_the_document_has_it(line: tuple[str, str, str, str, SessionType]) -> None:
    name, level, action, cell, column = line
    row = next(row for row in MATRIX if row.name == name)
    assert (row.cell(column), row.level, row.action) == (cell, level, action)
    assert row.word(column, sandboxed=True) == expected_word(level, cell)


@pytest.mark.parametrize("line", CELLS)
def test_a_cell_decides_the_call_it_speaks_of(line: tuple[str, str, str, str, SessionType]) -> None:
    name, level, action, cell, column = line
    decision = calls.decided(replace(EXAMPLES[name], session_type=column))
    assert name in [row.name for row in ROWS.values() if row.key in decision.rows]
    word = "escalate" if name in BY_NAME else expected_word(level, cell)
    assert decision.verdict == word
    assert decision.approves == (word == "approve")
    if word == "approve":
        assert decision.reason == f"Safety rule: {name}"
    if name in BY_NAME:
        more = "a command that may do more than read"
        assert decision.reason == f"Safety rule requires escalation: {more}"
    elif word == "escalate":
        assert decision.reason == f"Safety rule requires escalation: {name}"
        assert decision.target == "architect_manager"
    assert decision.alert == (action == "Escalate + Alert")


@pytest.mark.parametrize("line", CELLS)
@pytest.mark.requirement("X-7")
def test_a_cell_of_high_risk_says_who_may_review(
    line: tuple[str, str, str, str, SessionType],
) -> None:
    name, _, _, cell, column = line
    row = next(row for row in MATRIX if row.name == name)
    reviewer = Party(session="r", session_type=column)
    peer = Party(session="q", session_type=column)
    other = Party(session="q", session_type="codex")
    assert may_review(reviewer, row, other) == (cell in "✓~")
    assert may_review(reviewer, row, peer) == (cell == "✓")
    assert not may_review(reviewer, row, replace(other, session="r"))


@pytest.mark.parametrize("row", [None, *MATRIX, GIT_PUSH_MAIN])
@pytest.mark.requirement("X-7")
def test_nobody_reviews_itself_and_strangers_review_nothing(row: Row | None) -> None:
    for session_type in COLUMNS:
        itself = Party(session="s", session_type=session_type)
        assert not may_review(itself, row, itself)
    for stranger in ("unknown", "codex"):
        party = Party(session="r", session_type=stranger)
        assert not may_review(party, row, Party(session="q", session_type="worker"))


def test_what_no_row_speaks_of_is_for_managers_and_above() -> None:
    asks = Party(session="q", session_type="worker")
    may = {c: may_review(Party(session="r", session_type=c), None, asks) for c in COLUMNS}
    assert may == {"worker": False, "manager": True, "architect": True, "high-level": True}


@pytest.mark.requirement("B-25", "B-83")
def test_nothing_is_installed_without_a_sandbox_on_the_matrix_s_word() -> None:
    """In a sandbox the word approves; a command that only its name says to install is asked about.

    ADR 7 gives the reason.
    """
    assert {ROWS["install_dependencies"].word(one, sandboxed=True) for one in COLUMNS} == {
        "approve"
    }
    assert ROWS["install_dependencies"].word("worker", sandboxed=False) == "evaluate"
    outside = calls.decided(replace(EXAMPLES["Install dependencies"], sandboxed=False))
    assert (outside.action, outside.verdict) == ("escalate", "escalate")


@pytest.mark.parametrize(
    "operation", ["test", "git-fetch", "git-pull", "git-commit", "git-push", "install", "other"]
)
@pytest.mark.parametrize("session_type", COLUMNS)
def test_a_command_is_not_approved_by_the_name_of_its_operation(
    operation: str, session_type: SessionType
) -> None:
    """`make test clean` is named a test, `git fetch --prune` a fetch; both lose data."""
    rules = tuple(
        SafetyRule(pattern=key, action="auto_approve")
        for key, row in ROWS.items()
        if not row.always_escalates
    )
    command = replace(
        calls.shell(operation),
        session_type=session_type,
        sandboxed=True,
        snapshot=True,
        command_branches=("HEAD",),
        branch="feature/x",
    )
    settings = replace(calls.ON, safety_rules=rules, load_relief=True, unknown="conditional")
    for knowledge in (
        calls.CALM,
        replace(calls.CALM, health="well"),
        replace(calls.CALM, testing=True),
        replace(calls.CALM, queue_depth=50),
    ):
        decision = calls.decided(command, settings, knowledge)
        assert (decision.approves, decision.verdict) == (False, "escalate")
        assert decision.target is not None


def test_a_cross_in_a_row_of_low_risk_would_escalate() -> None:
    row = Row("shell_safe", "x", ("✗", "~", "✓", "✓"), "LOW", "Auto-approve")
    words = [row.word(column, sandboxed=True) for column in COLUMNS]
    assert words == ["escalate", "evaluate", "approve", "approve"]


@pytest.mark.requirement("B-21")
@pytest.mark.parametrize(
    "branch", ["main", "master", "develop", "feature/", "feature", "Feature/x"]
)
def test_a_push_to_anything_but_a_feature_branch_escalates(branch: str) -> None:
    decision = calls.decided(calls.push(branch=branch))
    assert decision.rows == ("git_push_main",)
    assert decision.reason == "Safety rule requires escalation: Git push to main"


@pytest.mark.requirement("B-15", "B-51")
def test_codex_is_trusted_like_a_worker_and_reviewed_by_the_architect() -> None:
    codex = replace(calls.push(), session_type="codex")
    assert calls.decided(codex).verdict == calls.decided(calls.push()).verdict == "evaluate"
    assert calls.decided(codex).target == "architect_manager"
    assert calls.decided(calls.push()).target == "wrapper_claude"


@pytest.mark.requirement("X-10")
def test_a_session_of_unknown_type_is_approved_nothing() -> None:
    for interaction in EXAMPLES.values():
        assert not calls.decided(replace(interaction, session_type="unknown")).approves
