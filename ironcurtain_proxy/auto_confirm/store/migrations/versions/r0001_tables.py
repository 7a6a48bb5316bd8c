"""The tables of the document, made or completed: what is there already stays as it is."""

from typing import Final

import sqlalchemy as sa
from alembic import op
from sqlalchemy.engine import Connection, Inspector

from ironcurtain_proxy.auto_confirm.store.faults import StoreError

revision = "0001"
down_revision = None

SEEDED: Final = ("/tmp/", "/private/tmp/", "project_root/", ".claude/", ".git/")  # noqa: S108
"""Safe paths as the document writes them. They only speak for confidence."""

_METADATA: Final = sa.MetaData()
_NOW: Final = sa.text("CURRENT_TIMESTAMP")
_FINAL: Final = sa.text("decision IN ('approved', 'rejected')")


def _table(name: str, *parts: "sa.Column[object] | sa.Index") -> sa.Table:
    # Column types differ; a table takes them all.
    key = sa.Column("id", sa.Integer, primary_key=True)
    return sa.Table(name, _METADATA, key, *parts, sqlite_autoincrement=True)


def _text(name: str, default: str | None = None, *, required: bool = False) -> "sa.Column[object]":
    return sa.Column(name, sa.Text, server_default=default, nullable=not required)


def _number(name: str, default: str | None = None) -> "sa.Column[object]":
    return sa.Column(name, sa.Float, server_default=None if default is None else sa.text(default))


def _whole(name: str, default: str | None = None) -> "sa.Column[object]":
    return sa.Column(name, sa.Integer, server_default=None if default is None else sa.text(default))


def _time(name: str, *, now: bool = False) -> "sa.Column[object]":
    return sa.Column(name, sa.TIMESTAMP, server_default=_NOW if now else None)


def _flag(name: str) -> "sa.Column[object]":
    # Written as 0 on SQLite, as the document has it, and as false on PostgreSQL.
    return sa.Column(name, sa.Boolean, server_default=sa.false())


def _interaction() -> "sa.Column[object]":
    key = sa.ForeignKey("claude_interactions.id")
    return sa.Column("interaction_id", sa.Integer, key, nullable=False)


_TABLES: Final = (
    _table(
        "claude_interactions",
        _text("session_name"),
        _text("prompt_type"),
        _text("prompt_text"),
        _text("file_path"),
        _text("action_requested"),
        _text("response"),
        _whole("matched_pattern_id"),
        _time("created_at", now=True),
        _time("responded_at"),
        _text("status", "pending"),
        _text("escalation_target"),
        _text("escalation_reason"),
        _time("escalation_time"),
        _whole("escalation_task_id"),
        _flag("auto_approved"),
        _number("risk_score", "0.5"),
        _number("confidence_score", "0.5"),
        _text("request_id"),
        _time("held_at"),
        _whole("escalation_count", "0"),
        _text("operation"),
        _text("scope"),
        _text("session_type"),
        _text("risk_band"),
        _text("factors"),
        _text("decided_by"),
        _number("decision_ms"),
        sa.Column("succeeded", sa.Boolean),
        sa.Index("ix_interactions_request", "request_id", unique=True),
        sa.Index("ix_interactions_session", "session_name", "created_at"),
        sa.Index("ix_interactions_status", "status"),
    ),
    _table(
        "permission_decisions",
        _interaction(),
        _text("decision", required=True),
        _text("reason"),
        _flag("auto_decision"),
        _text("escalation_target"),
        _time("created_at", now=True),
        _text("decided_by"),
        sa.Index("ix_decisions_interaction", "interaction_id"),
        sa.Index(
            "ix_decisions_final",
            "interaction_id",
            unique=True,
            sqlite_where=_FINAL,
            postgresql_where=_FINAL,
        ),
    ),
    _table(
        "approval_patterns",
        sa.Column("name", sa.Text, unique=True, nullable=False),
        _text("operation", required=True),
        _text("scope_regex"),
        _text("session_type"),
        _text("risk_level"),
        _flag("auto_approve"),
        _time("created_at", now=True),
        _text("created_by"),
        _whole("usage_count", "0"),
        _number("success_rate", "1.0"),
    ),
    _table(
        "safe_paths",
        sa.Column("path", sa.Text, unique=True, nullable=False),
        _text("operation"),
        _time("created_at", now=True),
    ),
    _table(
        "escalation_tasks",
        _interaction(),
        _text("type", "claude_permission_review"),
        _whole("priority", "9"),
        _number("timeout_minutes", "5"),
        _text("assign_to", required=True),
        _text("content", required=True),
        _text("status", "open"),
        _time("created_at", now=True),
        _time("answered_at"),
        sa.Index("ix_tasks_interaction", "interaction_id"),
    ),
    _table(
        "escalation_history",
        _interaction(),
        _text("from_target"),
        _text("to_target", required=True),
        _text("reason"),
        _time("created_at", now=True),
        sa.Index("ix_history_interaction", "interaction_id"),
    ),
    _table(
        "escalation_decisions",
        _interaction(),
        _text("decision", required=True),
        _text("decided_by", required=True),
        _time("decided_at", now=True),
        _text("reason"),
        _number("response_seconds"),
        sa.Index("ix_reviewer_decisions_interaction", "interaction_id"),
    ),
)


def upgrade() -> None:
    """Make what is missing.

    Raises:
        StoreError: a table of that name is not to be completed.
    """
    connection = op.get_bind()
    inspector = sa.inspect(connection)
    views = set(inspector.get_view_names())
    for table in _TABLES:
        if table.name in views:
            raise StoreError(f"the database has a view named {table.name}; name another store")
        if inspector.has_table(table.name):
            _complete(connection, inspector, table)
        else:
            table.create(connection)
    _seed(connection)


def downgrade() -> None:
    """Never: it would throw away what was recorded."""
    raise StoreError("the store is not taken back to an older schema")


def _complete(connection: Connection, inspector: Inspector, table: sa.Table) -> None:
    _refuse_what_is_not_ours(inspector, table)
    there = {column["name"] for column in inspector.get_columns(table.name)}
    for column in table.c:
        if column.name not in there:
            op.add_column(table.name, _addable(column, connection))
    indexes = {index["name"] for index in inspector.get_indexes(table.name)}
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        if index.name not in indexes:
            _add_index(connection, table, index)


def _refuse_what_is_not_ours(inspector: Inspector, table: sa.Table) -> None:
    there = {column["name"]: column for column in inspector.get_columns(table.name)}
    key = inspector.get_pk_constraint(table.name)["constrained_columns"]
    if key != ["id"] or not isinstance(there["id"]["type"], sa.Integer):
        raise StoreError(_foreign(table, "its key is not a number called id"))
    for name, found in there.items():
        must_be_filled = not found["nullable"] and found.get("default") is None
        if must_be_filled and name not in table.c:
            raise StoreError(_foreign(table, f"its column {name} must be filled"))
    for column in table.c:
        if not column.nullable and column.name not in there:
            raise StoreError(_foreign(table, f"it has no column {column.name}"))


def _foreign(table: sa.Table, why: str) -> str:
    return f"the table {table.name} is another program's: {why}; name another store"


def _addable(column: "sa.Column[object]", connection: Connection) -> "sa.Column[object]":
    default = column.server_default
    if connection.dialect.name == "sqlite" and getattr(default, "arg", None) is _NOW:
        # SQLite adds no column whose default is not a constant. We always give the time ourselves.
        default = None
    argument = getattr(default, "arg", None)
    return sa.Column(column.name, column.type, server_default=argument)


def _add_index(connection: Connection, table: sa.Table, index: sa.Index) -> None:
    try:
        with connection.begin_nested():
            index.create(connection)
    except sa.exc.IntegrityError as error:
        raise StoreError(_foreign(table, f"its rows contradict {index.name}")) from error


def _seed(connection: Connection) -> None:
    paths = next(table for table in _TABLES if table.name == "safe_paths")
    there = set(connection.execute(sa.select(paths.c.path)).scalars())
    missing = [{"path": path} for path in SEEDED if path not in there]
    if missing:
        connection.execute(sa.insert(paths), missing)
