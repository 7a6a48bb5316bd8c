"""The tables of the store, their version, and the opening of a store.

The current tables stand in `tables.toml`. A database may be new, ours, or another program's. On
SQLite, types and defaults are those that other programs of the store expect; the further columns of
this project are optional. Missing tables and columns are made; existing ones stay. The version
number in the store keeps an older proxy from using a newer store.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path
from typing import Final, cast

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection, Dialect, Inspector
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import TypeDecorator, TypeEngine

from ironcurtain_proxy.auto_confirm.store.database import Database, open_database, sqlite_path
from ironcurtain_proxy.auto_confirm.store.rows import StoreError

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
_TYPES: Final = {
    "text": StoredText(), "time": UtcTimestamp(), "number": sa.Float(), "integer": sa.Integer(),
    "flag": sa.Boolean(),
}  # fmt: skip
_MARKS: Final = frozenset({"filled", "unique", "key"})


def _column(name: str, text: str) -> "sa.Column[object]":
    """Return a column by its type, default and marks, as `tables.toml` writes them."""
    kind, *more = text.split()
    if kind == "interaction":
        key = sa.ForeignKey("claude_interactions.id")
        return sa.Column(name, sa.Integer, key, nullable=False)
    return sa.Column(
        name,
        cast("TypeEngine[object]", _TYPES[kind]),
        primary_key="key" in more,
        nullable={"filled", "key"}.isdisjoint(more),
        unique="unique" in more or None,
        server_default=next((_default(kind, one) for one in more if one not in _MARKS), None),
    )


def _default(
    kind: str, word: str
) -> "str | sa.TextClause | sa.ColumnElement[datetime] | sa.ColumnElement[bool]":
    match kind:
        case "text":
            return word
        case "time":
            return sa.func.current_timestamp()
        case "flag":
            return sa.false()
        case _:
            return sa.text(word)


def _index(name: str, text: str) -> sa.Index:
    *columns, last = text.split()
    is_unique = last == "unique"
    return sa.Index(name, *columns, *(() if is_unique else (last,)), unique=is_unique)


def _table(name: str, columns: Mapping[str, str], indexes: Mapping[str, str]) -> sa.Table:
    parts = [*starmap(_column, columns.items()), *starmap(_index, indexes.items())]
    if any("key" in text.split() for text in columns.values()):
        return sa.Table(name, METADATA, *parts)
    # An id is never reused.
    key = sa.Column("id", sa.Integer, primary_key=True)
    return sa.Table(name, METADATA, key, *parts, sqlite_autoincrement=True)


_TABLES: Final = {
    name: _table(name, one["columns"], one.get("indexes", {}))
    for name, one in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
INTERACTIONS: Final = _TABLES["claude_interactions"]
DECISIONS: Final = _TABLES["permission_decisions"]
_ENDS: Final = sa.text("decision IN ('approved', 'rejected')")
sa.Index("ix_decisions_final", DECISIONS.c.interaction_id, unique=True, sqlite_where=_ENDS,
         postgresql_where=_ENDS)  # fmt: skip
"""INVARIANT: an interaction is approved or rejected at most once, by any process."""
PATTERNS: Final = _TABLES["approval_patterns"]
SAFE_PATHS: Final = _TABLES["safe_paths"]
TASKS: Final = _TABLES["escalation_tasks"]
HISTORY: Final = _TABLES["escalation_history"]
REVIEWER_DECISIONS: Final = _TABLES["escalation_decisions"]
"""Decisions of people and reviewers: the only ones that the engine learns from."""
UPKEEP: Final = _TABLES["ironcurtain_upkeep"]
"""Times of work that one of several proxies does. The document has no such table."""


# --- schema


VERSION_TABLE: Final = "ironcurtain_schema_version"
"""The version table, with a name of our own: other programs may share the database."""
HEAD: Final = "0003"
"""The newest version; each new column or table increases it. Columns are never removed."""
KNOWN: Final = frozenset({"0001", "0002", HEAD})

SEEDED: Final = ("/tmp/", "/private/tmp/", "project_root/", ".claude/", ".git/")  # noqa: S108
"""Safe paths of the document. They only increase confidence."""

_VERSION: Final = sa.Table(
    VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True)
)
_LOCK: Final = 0x1C0_51DE
"""The number of PostgreSQL's advisory lock for migrations."""


def bring_up_to_date(database: Database) -> None:
    """Make or complete the tables if needed.

    Raises:
        StoreError: the database is damaged, newer than this program, or cannot be completed. It is
            then unchanged.
    """
    # The usual case costs one read.
    if _is_current(database, database.read(_revision)):
        return
    database.write(lambda connection: _migrate(connection, database))


def is_there(database: Database) -> bool:
    """Return whether the tables exist. Changes nothing.

    Raises:
        StoreError: the database cannot be read, or is newer than this program.
    """
    revision = database.read(_revision)
    _is_current(database, revision)
    return revision is not None


def _is_current(database: Database, revision: str | None) -> bool:
    if revision is not None and revision not in KNOWN:
        raise StoreError(
            f"{database.where}: was written by a newer ironcurtain-proxy (schema {revision!r}); "
            "upgrade, or name another store"
        )
    return revision == HEAD


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.select(_VERSION.c.version_num)).scalars().first()


def _migrate(connection: Connection, database: Database) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    # Another process may have done it while we waited for the lock.
    revision = _revision(connection)
    if _is_current(database, revision):
        return
    inspector = sa.inspect(connection)
    views = set(inspector.get_view_names())
    for table in METADATA.sorted_tables:
        if table.name in views:
            raise StoreError(f"the database has a view named {table.name}; name another store")
        if inspector.has_table(table.name):
            _complete(connection, inspector, table)
        else:
            table.create(connection)
    if revision is None:
        # Once, so that rows removed by the operator stay removed.
        _add_missing(connection, SAFE_PATHS.c.path, SEEDED)
    # Made at the start, so that concurrent processes have a row to lock.
    _add_missing(connection, UPKEEP.c.name, ("retention",))
    _VERSION.create(connection, checkfirst=True)
    connection.execute(sa.delete(_VERSION))
    connection.execute(sa.insert(_VERSION).values(version_num=HEAD))


def _complete(connection: Connection, inspector: Inspector, table: sa.Table) -> None:
    _refuse_what_is_not_ours(inspector, table)
    there = {column["name"] for column in inspector.get_columns(table.name)}
    for column in table.c:
        if column.name not in there:
            _add_column(connection, table, column)
    indexes = {index["name"] for index in inspector.get_indexes(table.name)}
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        if index.name not in indexes:
            _add_index(connection, table, index)


def _refuse_what_is_not_ours(inspector: Inspector, table: sa.Table) -> None:
    there = {column["name"]: column for column in inspector.get_columns(table.name)}
    key = inspector.get_pk_constraint(table.name)["constrained_columns"]
    if "id" in table.c and (key != ["id"] or not isinstance(there["id"]["type"], sa.Integer)):
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


def _add_column(connection: Connection, table: sa.Table, column: "sa.Column[object]") -> None:
    default = getattr(column.server_default, "arg", None)
    if connection.dialect.name == "sqlite" and isinstance(default, sa.Function):
        # SQLite adds no column whose default is not a constant. We always give the time ourselves.
        default = None
    added = sa.Column(column.name, column.type, server_default=default)
    sa.Table(table.name, sa.MetaData(), added)
    words = CreateColumn(added).compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {words}")


def _add_index(connection: Connection, table: sa.Table, index: sa.Index) -> None:
    try:
        with connection.begin_nested():
            index.create(connection)
    except sa.exc.IntegrityError as error:
        raise StoreError(_foreign(table, f"its rows contradict {index.name}")) from error


def _add_missing(connection: Connection, column: "sa.Column[str]", values: tuple[str, ...]) -> None:
    there = set(connection.execute(sa.select(column)).scalars())
    missing = [{column.name: value} for value in values if value not in there]
    if missing:
        connection.execute(sa.insert(column.table), missing)


# --- opening --------------------------------------------------------------------------------------
# The opening of a store: for the first time, again after a loss, or for inspection.


class StoreOrigin(Struct, frozen=True):
    """The arguments of an opened store, to open it again."""

    url: str | None
    state_dir: Path
    deadline_seconds: float


def open_first(origin: StoreOrigin, *, create: bool) -> Database:
    """Open the database and bring its tables up to date.

    Raises:
        StoreError: it cannot be used; nothing in it was changed.
    """
    database = open_database(
        origin.url, origin.state_dir, create=create, deadline_seconds=origin.deadline_seconds
    )
    try:
        bring_up_to_date(database)
    except BaseException:
        database.close()
        raise
    return database


def open_again(before: Database, origin: StoreOrigin) -> Database:
    """Open a database anew after `StoreLostError`; `before` is closed.

    A missing SQLite file is not made again: an empty store would lack what was learned or disabled.
    A damaged or replaced file is checked completely first. A new database of PostgreSQL gets its
    tables: its server vouches for it.

    Raises:
        StoreError: it cannot be used yet.
    """
    before.close()
    if before.file is not None:
        before.file.set_remains_aside()
    database = open_database(
        origin.url, origin.state_dir, in_use=True, deadline_seconds=origin.deadline_seconds
    )
    try:
        if before.doubtful:
            database.look_for_damage()
        bring_up_to_date(database)
    except BaseException:
        database.close()
        raise
    return database


def inspect_store(url: str | None, state_dir: Path) -> bool:
    """Check whether a store can be used, without a change to it.

    Returns:
        Whether there is one: False where the engine's first session will make it.

    Raises:
        StoreError: it cannot be used.
    """
    path = sqlite_path(url, state_dir)
    if path is not None and not os.path.lexists(path):
        return False
    database = open_database(url, state_dir, create=False)
    try:
        database.look_for_damage()
        return is_there(database)
    finally:
        database.close()
