"""The safety rule matrix: fifteen operations, four kinds of sessions.

The table stands in `engine_tables.toml`. In rows of low and medium risk, a cell decides on a call.
Rows of high and critical risk always go to a reviewer, and a cell says who may review.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from msgspec import Struct, convert

from ironcurtain_proxy.auto_confirm.engine.extraction import (
    CallSubject,
    Touch,
    are_feature_branches,
)
from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.engine.patterns import Party, SessionPlaces, SessionType
from ironcurtain_proxy.auto_confirm.engine_tables import TABLES

Cell: TypeAlias = Literal["✓", "~", "✗"]
RowLevel: TypeAlias = Literal["LOW", "MED", "HIGH", "CRITICAL"]
RowAction: TypeAlias = Literal["Auto-approve", "Conditional", "Escalate", "Escalate + Alert"]
MatrixWord: TypeAlias = Literal["approve", "evaluate", "escalate"]
"""The matrix's answer on a call; it never denies."""

RowKey: TypeAlias = Literal[
    "file_edit_in_tmp", "file_edit_in_project", "file_delete", "file_read_public",
    "git_pull_fetch", "git_commit_feature", "git_push_feature", "git_commit_main",
    "git_push_force", "shell_safe", "shell_rm", "shell_dd_mount", "install_dependencies",
    "test_execution", "deploy_prod", "git_push_main",
]  # fmt: skip
"""The names of rows in a configuration."""

_COLUMNS: Final[Mapping[SessionType, int | None]] = MappingProxyType(
    # Codex has no column: it is trusted like a worker.
    {"worker": 0, "codex": 0, "manager": 1, "architect": 2, "high-level": 3, "unknown": None}
)


class Row(Struct, frozen=True):
    """One line of the matrix."""

    key: RowKey
    name: str
    cells: tuple[Cell, Cell, Cell, Cell]
    """Worker, manager, architect, high-level."""
    level: RowLevel
    action: RowAction
    taken_back: str = "a reviewer decides"
    """What takes such a call back, or why there is nothing to take back."""

    def cell(self, session_type: SessionType) -> Cell | None:
        """Return the cell of a session type, or None if it has no column."""
        column = _COLUMNS[session_type]
        return None if column is None else self.cells[column]

    @property
    def always_escalates(self) -> bool:
        """Whether a reviewer decides for every session type."""
        return self.level in {"HIGH", "CRITICAL"}

    def word(self, session_type: SessionType, *, sandboxed: bool) -> MatrixWord:
        """Return the answer on a call of a session; a session type without a column has none."""
        cell = self.cell(session_type)
        if self.always_escalates or cell == "✗":
            return "escalate"
        # Packages run foreign programs when they are installed.
        if cell != "✓" or (self.key == "install_dependencies" and not sandboxed):
            return "evaluate"
        return "approve"


def _row(fields: dict[str, object]) -> Row:
    return convert({**fields, "cells": tuple(str(fields["cells"]))}, Row)


class _Matrix(Struct, frozen=True):
    rows: dict[OperationKind, RowKey]
    matrix: list[dict[str, object]]
    push_to_main: dict[str, object]


_TABLE: Final = convert(TABLES, _Matrix)
MATRIX: Final[tuple[Row, ...]] = tuple(map(_row, _TABLE.matrix))
"""The fifteen rows of the table."""

GIT_PUSH_MAIN: Final = _row(_TABLE.push_to_main)
"""A row beside the table: a push to main is judged as a commit to main is."""

ROWS: Final[Mapping[RowKey, Row]] = MappingProxyType(
    {row.key: row for row in (*MATRIX, GIT_PUSH_MAIN)}
)


def key_of(
    touch: Touch, subject: CallSubject, places: SessionPlaces, feature_branches: tuple[str, ...]
) -> RowKey | None:
    """Return the row for one thing that a call does, or None if the matrix does not speak of it.

    `feature_branches` are prefixes of branches that are nobody else's.
    """
    match touch.operation:
        case "edit":
            return _edit(touch, places)
        case "read" | "list":
            return _read(touch, subject, places)
        case "git-commit" | "git-push":
            feature = are_feature_branches(subject.branches, feature_branches)
            return _BRANCH_ROWS[(touch.operation, feature)]
        case "unknown" | "database" | "network":
            return None
        case (
            "deploy" | "git-force-push" | "shell-dd-mount" | "delete" | "shell-rm" | "install"
            | "shell-safe" | "test" | "git-pull" | "git-fetch"
        ):  # fmt: skip
            return _TABLE.rows[touch.operation]
        case _:
            assert_never(touch.operation)


_BRANCH_ROWS: Final[Mapping[tuple[str, bool], RowKey]] = MappingProxyType(
    {
        ("git-commit", True): "git_commit_feature",
        ("git-commit", False): "git_commit_main",
        ("git-push", True): "git_push_feature",
        ("git-push", False): "git_push_main",
    }
)


def _edit(touch: Touch, places: SessionPlaces) -> RowKey | None:
    if touch.path is None:
        return None
    if places.in_workspace(touch.path):
        return "file_edit_in_project"
    return "file_edit_in_tmp" if places.in_own_temporary(touch.path) else None


def _read(touch: Touch, subject: CallSubject, places: SessionPlaces) -> RowKey | None:
    if touch.path is None:
        return "file_read_public" if subject.own_data else None
    return "file_read_public" if places.is_public(touch.path) else None


def may_review(reviewer: Party, row: Row | None, requester: Party) -> bool:
    """Return whether a session may decide about a call of another one.

    ✓ may; ~ may, but not about its own kind of session; ✗ may not. What no row speaks of is for
    managers and above. Nobody decides about itself.
    """
    if reviewer.session == requester.session or reviewer.session_type in ("unknown", "codex"):
        return False
    if row is None:
        return reviewer.session_type != "worker"
    cell = row.cell(reviewer.session_type)
    return cell == "✓" or (cell == "~" and reviewer.session_type != requester.session_type)
