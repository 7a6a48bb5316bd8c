"""Bringing a database to the tables we need: new, ours, or one that another program began."""

from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.store.database import Database
from ironcurtain_proxy.auto_confirm.store.faults import StoreError

VERSION_TABLE: Final = "ironcurtain_schema_version"
"""Not Alembic's own name: the database may be shared with a program that uses that."""
HEAD: Final = "0003"
"""The newest revision; a test holds it to the migrations."""
KNOWN: Final = frozenset({"0001", "0002", HEAD})

_LOCK: Final = 0x1C0_51DE
"""The number under which PostgreSQL lets one process migrate at a time."""


def bring_up_to_date(database: Database) -> None:
    """Make or complete the tables, if they are not as they should be.

    Raises:
        StoreError: the database is damaged, newer than we are, or not to be completed. It is then
            as it was before.
    """
    # The usual case costs one read; Alembic is not even imported.
    if _is_current(database, database.read(_revision)):
        return
    database.write(lambda connection: _migrate(connection, database))


def is_there(database: Database) -> bool:
    """Whether the tables were ever made. Changes nothing.

    Raises:
        StoreError: the database cannot be read, or is newer than we are.
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
    version = sa.table(VERSION_TABLE, sa.column("version_num", sa.Text))
    return connection.execute(sa.select(version.c.version_num)).scalars().first()


def _migrate(connection: Connection, database: Database) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    # Another process may have done it while we waited for the lock.
    if _is_current(database, _revision(connection)):
        return
    # A quarter of a second to import, and seldom needed.
    from alembic import command, config  # noqa: PLC0415

    settings = config.Config()
    settings.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    settings.set_main_option("path_separator", "newline")
    settings.attributes["connection"] = connection
    settings.attributes["version_table"] = VERSION_TABLE
    command.upgrade(settings, "head")
