"""The opening of a store, and its migration to the current tables.

A database may be new, ours, or another program's.

Missing tables and columns are made; existing ones stay. The version number in the store keeps an
older proxy from using a newer store.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.schema import CreateColumn

from ironcurtain_proxy.auto_confirm.store.database import Database, open_database, sqlite_path
from ironcurtain_proxy.auto_confirm.store.faults import StoreError
from ironcurtain_proxy.auto_confirm.store.tables import METADATA, SAFE_PATHS, UPKEEP

VERSION_TABLE: Final = "ironcurtain_schema_version"
"""The version table, with a name of our own: other programs may share the database."""
HEAD: Final = "0003"
"""The newest version; each new column or table increases it. Columns are never removed."""
KNOWN: Final = frozenset({"0001", "0002", HEAD})

SEEDED: Final = ("/tmp/", "/private/tmp/", "project_root/", ".claude/", ".git/")  # noqa: S108
"""Safe paths of the document. They only increase confidence."""

_VERSION: Final = sa.Table(
    VERSION_TABLE,
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), primary_key=True),
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


@dataclass(frozen=True, slots=True)
class StoreOrigin:
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
