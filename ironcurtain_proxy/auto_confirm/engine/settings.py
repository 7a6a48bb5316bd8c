"""The operator's settings of the engine, and the safety rule matrix.

`docs/auto-confirm.md` describes the keys. `config` checks each value; this module checks how the
values fit together.

The table stands in `engine_tables.toml`. In rows of low and medium risk, a cell decides on a call.
Rows of high and critical risk always go to a reviewer, and a cell says who may review.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias, assert_never

from msgspec import Meta, Struct, convert, field

from ironcurtain_proxy.auto_confirm.engine.extraction import (
    CallSubject,
    Touch,
    are_feature_branches,
)
from ironcurtain_proxy.auto_confirm.engine.interaction import (
    OperationKind,
    Party,
    SessionPlaces,
    SessionType,
)
from ironcurtain_proxy.auto_confirm.engine_tables import TABLES
from ironcurtain_proxy.errors import ConfigurationError, KernelError

_Hour: TypeAlias = Annotated[int, Meta(ge=0, le=23)]
_Reviewer: TypeAlias = Annotated[str, Meta(min_length=1)]

# --- matrix


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

_COLUMNS: Final[Mapping[SessionType, int | None]] = {
    "worker": 0,
    "codex": 0,
    "manager": 1,
    "architect": 2,
    "high-level": 3,
    "unknown": None,
}


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

ROWS: Final[Mapping[RowKey, Row]] = {row.key: row for row in (*MATRIX, GIT_PUSH_MAIN)}


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


_BRANCH_ROWS: Final[Mapping[tuple[str, bool], RowKey]] = {
    ("git-commit", True): "git_commit_feature",
    ("git-commit", False): "git_commit_main",
    ("git-push", True): "git_push_feature",
    ("git-push", False): "git_push_main",
}


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


# --- settings


NightAction: TypeAlias = Literal["escalate", "hold"]
"""The action at night for calls that nothing approved."""


class NightMode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hours in which a reviewer decides instead of the engine's default."""

    enabled: bool = True
    start_hour: _Hour = 21
    """The first hour of the night."""
    end_hour: _Hour = 6
    """The hour after the night. Before `start_hour`: the night goes over midnight. Equal:
    all day."""
    action: NightAction = "escalate"

    def is_on(self, moment: datetime) -> bool:
        """Return whether this time is at night.

        Args:
            moment: aware, in the operator's own time zone.

        Raises:
            KernelError: the moment has no time zone.
        """
        if moment.utcoffset() is None:
            raise KernelError("the engine was handed a time without a zone")
        if not self.enabled:
            return False
        if self.start_hour < self.end_hour:
            return self.start_hour <= moment.hour < self.end_hour
        return moment.hour >= self.start_hour or moment.hour < self.end_hour


RuleAction: TypeAlias = Literal["auto_approve", "escalate", "conditional"]
UnknownAction: TypeAlias = Literal["escalate", "conditional"]
"""The action for an operation that the engine does not know."""

TimeoutAction: TypeAlias = Literal["approve", "deny"]
"""The action for an unanswered question. It is no decision of the engine."""

RulePattern: TypeAlias = RowKey | Literal["git_delete_force", "database", "network", "unknown"]
FURTHER_RULES: Final = frozenset({"git_delete_force", "database", "network", "unknown"})
"""Further names of safety rules than those of the matrix's rows. They can only escalate."""

NO_REVIEWER: Final = "auto_approve"
"""Stands where low risk would have a reviewer."""

HUMAN: Final = "human"

REVIEWER_TYPES: Final[Mapping[str, SessionType]] = {
    "architect_manager": "architect",
    "wrapper_claude": "manager",
    "claude_code_high_level": "high-level",
}
"""The default session types of the reviewers that the original document names."""


class SafetyRule(Struct, frozen=True, kw_only=True):
    """The operator's rule for a row of the matrix."""

    pattern: RulePattern
    action: RuleAction
    target: str | None = None
    """The reviewer, for `escalate`. `None` means the reviewer of high risk."""

    def __post_init__(self) -> None:
        row = next((row for row in ROWS.values() if row.key == self.pattern), None)
        if row is None and self.pattern not in FURTHER_RULES:
            raise ConfigurationError(
                f"auto_confirm.safety_rules: no operation is called {self.pattern!r}"
            )
        if self.action != "escalate" and (row is None or row.always_escalates):
            # No rule can make the matrix more lenient.
            raise ConfigurationError(
                f"auto_confirm.safety_rules: {self.pattern} can only be escalated"
            )


class EscalationTargets(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reviewers of each kind of call, by name."""

    high_risk: _Reviewer = "architect_manager"
    medium_risk: _Reviewer = "wrapper_claude"
    low_risk: Literal["auto_approve"] = NO_REVIEWER
    """The word for no reviewer: a call of low risk and high confidence needs none. No other word is
    accepted."""


class ReviewerSetting(Struct, frozen=True, kw_only=True):
    """A configured reviewer."""

    name: str
    kind: Literal["human", "process"] = "process"
    session: str | None = None
    """The session that a process reviews from. `None` means its name."""
    session_type: SessionType = "unknown"
    may_deny: bool = True


class AutoConfirmSettings(Struct, frozen=True, kw_only=True):
    """The engine's configuration."""

    enabled: bool = False
    intelligent_escalation: bool = True
    """Off: a person decides on every escalated call."""
    escalation_targets: EscalationTargets = field(default_factory=EscalationTargets)
    safety_rules: tuple[SafetyRule, ...] = ()
    night_mode: NightMode = field(default_factory=NightMode)
    escalation_timeout_minutes: float = 5
    """Minutes for each of the two reviewers that are asked, one after the other."""
    fallback_escalation: str = "claude_code_high_level"
    load_relief: bool = False
    """Approve more when more than ten reviews of other sessions are pending."""
    unknown: UnknownAction = "escalate"
    on_timeout: Mapping[OperationKind, TimeoutAction] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The action by operation, by default `deny`. `decision.check_on_timeout` checks it."""
    feature_branches: tuple[str, ...] = ("feature/",)
    """Prefixes of branches that are nobody else's."""
    reviewers: tuple[ReviewerSetting, ...] = ()
    """The reviewers. Empty means a person reviews everything."""

    def __post_init__(self) -> None:
        if not all(prefix.strip("/") for prefix in self.feature_branches):
            raise ConfigurationError(
                "auto_confirm.feature_branches: an empty prefix is every branch"
            )
        names = [reviewer.name for reviewer in self.reviewers]
        if len(set(names)) != len(names):
            raise ConfigurationError("auto_confirm.reviewers: two have one name")

    def reviewer(self, name: str) -> ReviewerSetting | None:
        """Return the reviewer with this name, or None if a person stands in."""
        return next((found for found in self.reviewers if found.name == name), None)
