"""The current tables; `schema` makes and completes them.

On SQLite, types and defaults are those that other programs of the store expect. The further columns
of this project are optional.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class StoredText(TypeDecorator[str]):
    """Text with NUL and lone surrogates as escapes, so that no text of an agent is an error.

    PostgreSQL takes no NUL, and neither database the surrogates of undecodable file names.
    """

    impl = sa.Text  # type: ignore[mutable-override]
    cache_ok = True  # type: ignore[mutable-override]

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape what a database may not store in a text."""
        del dialect
        return None if value is None else _UNSTORABLE.sub(_escape, value)

    def process_result_value(self, value: object, dialect: Dialect) -> str | None:
        """Return the text of a column, or None for another type: SQLite stores any type."""
        del dialect
        return value if isinstance(value, str) else None


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code == 0 else f"\\u{code:04x}"


class _SqliteTimestamp(sqlite.DATETIME):
    """SQLite's text as a time; None for an invalid time of another program."""

    __visit_name__ = "TIMESTAMP"

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[object], datetime | None]:
        """Return the reader of times; an invalid time of another program becomes None."""
        del dialect, coltype
        return _read_time


def _read_time(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


class UtcTimestamp(TypeDecorator[datetime]):
    """Aware times, stored without a zone, in UTC."""

    impl = sa.TIMESTAMP  # type: ignore[mutable-override]
    cache_ok = True  # type: ignore[mutable-override]

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime]:
        """Choose a type: SQLite has none of its own for times."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(_SqliteTimestamp())  # type: ignore[no-untyped-call]
        return dialect.type_descriptor(sa.TIMESTAMP())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time in UTC, without a zone."""
        del dialect
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time with its zone."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


METADATA: Final = sa.MetaData()
_NOW: Final = sa.func.current_timestamp()


def _table(name: str, *parts: "sa.Column[object] | sa.Index") -> sa.Table:
    # Column types differ; a table takes them all. An id is never reused.
    key = sa.Column("id", sa.Integer, primary_key=True)
    return sa.Table(name, METADATA, key, *parts, sqlite_autoincrement=True)


def _interaction_id() -> "sa.Column[object]":
    key = sa.ForeignKey("claude_interactions.id")
    return sa.Column("interaction_id", sa.Integer, key, nullable=False)


def _written_at(name: str = "created_at") -> "sa.Column[object]":
    return sa.Column(name, UtcTimestamp, server_default=_NOW)


INTERACTIONS: Final = _table(
    "claude_interactions",
    sa.Column("session_name", StoredText),
    sa.Column("prompt_type", StoredText),
    sa.Column("prompt_text", StoredText),
    sa.Column("file_path", StoredText),
    sa.Column("action_requested", StoredText),
    sa.Column("response", StoredText),
    sa.Column("matched_pattern_id", sa.Integer),
    _written_at(),
    sa.Column("responded_at", UtcTimestamp),
    sa.Column("status", StoredText, server_default="pending"),
    sa.Column("escalation_target", StoredText),
    sa.Column("escalation_reason", StoredText),
    sa.Column("escalation_time", UtcTimestamp),
    sa.Column("escalation_task_id", sa.Integer),
    sa.Column("auto_approved", sa.Boolean, server_default=sa.false()),
    sa.Column("risk_score", sa.Float, server_default=sa.text("0.5")),
    sa.Column("confidence_score", sa.Float, server_default=sa.text("0.5")),
    sa.Column("request_id", StoredText),
    sa.Column("held_at", UtcTimestamp),
    sa.Column("escalation_count", sa.Integer, server_default=sa.text("0")),
    sa.Column("operation", StoredText),
    sa.Column("scope", StoredText),
    sa.Column("session_type", StoredText),
    sa.Column("risk_band", StoredText),
    sa.Column("factors", StoredText),
    sa.Column("decided_by", StoredText),
    sa.Column("decision_ms", sa.Float),
    sa.Column("succeeded", sa.Boolean),
    sa.Column("owner", StoredText),
    sa.Index("ix_interactions_request", "request_id", unique=True),
    sa.Index("ix_interactions_session", "session_name", "created_at"),
    sa.Index("ix_interactions_status", "status"),
    sa.Index("ix_interactions_created", "created_at"),
)

DECISIONS: Final = _table(
    "permission_decisions",
    _interaction_id(),
    sa.Column("decision", StoredText, nullable=False),
    sa.Column("reason", StoredText),
    sa.Column("auto_decision", sa.Boolean, server_default=sa.false()),
    sa.Column("escalation_target", StoredText),
    _written_at(),
    sa.Column("decided_by", StoredText),
    sa.Index("ix_decisions_interaction", "interaction_id"),
    sa.Index(
        "ix_decisions_final",
        "interaction_id",
        unique=True,
        sqlite_where=sa.text("decision IN ('approved', 'rejected')"),
        postgresql_where=sa.text("decision IN ('approved', 'rejected')"),
    ),
)
"""INVARIANT: an interaction is approved or rejected at most once, by any process."""

PATTERNS: Final = _table(
    "approval_patterns",
    sa.Column("name", StoredText, unique=True, nullable=False),
    sa.Column("operation", StoredText, nullable=False),
    sa.Column("scope_regex", StoredText),
    sa.Column("session_type", StoredText),
    sa.Column("risk_level", StoredText),
    sa.Column("auto_approve", sa.Boolean, server_default=sa.false()),
    _written_at(),
    sa.Column("created_by", StoredText),
    sa.Column("usage_count", sa.Integer, server_default=sa.text("0")),
    sa.Column("success_rate", sa.Float, server_default=sa.text("1.0")),
)

SAFE_PATHS: Final = _table(
    "safe_paths",
    sa.Column("path", StoredText, unique=True, nullable=False),
    sa.Column("operation", StoredText),
    _written_at(),
)

TASKS: Final = _table(
    "escalation_tasks",
    _interaction_id(),
    sa.Column("type", StoredText, server_default="claude_permission_review"),
    sa.Column("priority", sa.Integer, server_default=sa.text("9")),
    sa.Column("timeout_minutes", sa.Float, server_default=sa.text("5")),
    sa.Column("assign_to", StoredText, nullable=False),
    sa.Column("content", StoredText, nullable=False),
    sa.Column("status", StoredText, server_default="open"),
    _written_at(),
    sa.Column("answered_at", UtcTimestamp),
    sa.Index("ix_tasks_interaction", "interaction_id"),
)

HISTORY: Final = _table(
    "escalation_history",
    _interaction_id(),
    sa.Column("from_target", StoredText),
    sa.Column("to_target", StoredText, nullable=False),
    sa.Column("reason", StoredText),
    _written_at(),
    sa.Index("ix_history_interaction", "interaction_id"),
)

REVIEWER_DECISIONS: Final = _table(
    "escalation_decisions",
    _interaction_id(),
    sa.Column("decision", StoredText, nullable=False),
    sa.Column("decided_by", StoredText, nullable=False),
    _written_at("decided_at"),
    sa.Column("reason", StoredText),
    sa.Column("response_seconds", sa.Float),
    sa.Index("ix_reviewer_decisions_interaction", "interaction_id"),
)
"""Decisions of people and reviewers: the only ones that the engine learns from."""

UPKEEP: Final = sa.Table(
    "ironcurtain_upkeep",
    METADATA,
    sa.Column("name", StoredText, primary_key=True),
    sa.Column("done_at", UtcTimestamp),
)
"""Times of work that one of several proxies does. The document has no such table."""
