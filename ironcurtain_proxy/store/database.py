"""How a database is opened and spoken to: short transactions, deadlines, one kind of fault.

SQLite by default: write-ahead log, so that readers and the one writer do not stop each other;
every writing transaction takes the lock when it begins, so that none fails halfway. Knows nothing
of the tables.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from ironcurtain_proxy.store.faults import AlreadyDecidedError, StoreError
from ironcurtain_proxy.store.files import prepare_file

T = TypeVar("T")

FILE_NAME: Final = "interactions.db"
_DEADLINE_SECONDS: Final = 5.0
_BUSY_MILLISECONDS: Final = 500
"""How long SQLite itself waits for a lock before we look at the deadline."""
_PAUSE_SECONDS: Final = 0.02
_POSTGRESQL: Final = frozenset({"postgresql", "postgres", "postgresql+psycopg"})
_TRY_AGAIN: Final = frozenset({"40001", "40P01", "55P03"})
"""SQLSTATE: serialization failure, deadlock, lock not available. Nothing was written."""
_SQLITE_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class _Cursor(Protocol):
    def execute(self, statement: str) -> object: ...
    def fetchone(self) -> tuple[object, ...] | None: ...
    def close(self) -> None: ...


class _RawConnection(Protocol):
    isolation_level: object

    def cursor(self) -> _Cursor: ...
    def commit(self) -> None: ...


class Database:
    """An open database. Thread-safe.

    Attributes:
        where: the file or the server, without a password, for messages.
    """

    def __init__(self, engine: Engine, where: str, deadline_seconds: float) -> None:
        self.where = where
        self._deadline = deadline_seconds
        self._engine = engine
        self._writer = engine.execution_options(writes=True)
        # SQLite's readers see one state anyway.
        self._reader = (
            engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            if engine.dialect.name == "postgresql"
            else engine
        )

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    def read(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in a transaction that sees one state of the database and changes nothing.

        Raises:
            StoreError: it cannot be read.
        """
        return self._run(self._reader, work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in one transaction, all of it or nothing.

        `work` is done again if another process was in the way; what it does outside of the
        database must bear that.

        Raises:
            AlreadyDecidedError: it would have decided an interaction twice.
            StoreError: it cannot be written, or not in time.
        """
        return self._run(self._writer, work)

    def close(self) -> None:
        """Give all connections back; harmless if repeated."""
        self._engine.dispose()

    def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        end = time.monotonic() + self._deadline
        while True:
            try:
                with engine.begin() as connection:
                    return work(connection)
            except (SQLAlchemyError, sqlite3.Error) as error:
                if not _may_try_again(error) or time.monotonic() >= end:
                    raise self._fault(error) from error
            # Not in step with the others that wait.
            time.sleep(_PAUSE_SECONDS * (0.5 + random.random()))  # noqa: S311  no secret

    def _fault(self, error: Exception) -> StoreError:
        if isinstance(error, IntegrityError) and _is_second_decision(error):
            return AlreadyDecidedError("the interaction was already decided")
        return StoreError(f"{self.where}: {_words(error)}")


def open_database(
    url: str | None,
    state_dir: Path,
    *,
    create: bool = True,
    deadline_seconds: float = _DEADLINE_SECONDS,
) -> Database:
    """Open, without looking at what is in it.

    Args:
        url: `postgresql://…`, `sqlite:////absolute/path`; None: a file in the state directory.
        state_dir: absolute; made private.
        create: whether a missing SQLite file is made.
        deadline_seconds: how long one transaction may wait for others.

    Raises:
        StoreError: it cannot be used.
    """
    own = url is None
    parsed = (
        URL.create("sqlite", database=str(state_dir / FILE_NAME)) if url is None else _parse(url)
    )
    if parsed.drivername != "sqlite":
        where = parsed.render_as_string(hide_password=True)
        return Database(_postgresql(parsed), where, deadline_seconds)
    path = Path(parsed.database or "")
    prepare_file(path, create=create, own_directory=own)
    return Database(_sqlite(path), str(path), deadline_seconds)


def _parse(url: str) -> URL:
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):
        # Its words would repeat the URL, which may hold a password.
        raise StoreError("the store's URL cannot be read: write postgresql://… or null") from None
    if parsed.drivername in _POSTGRESQL:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in {"sqlite", "sqlite+pysqlite"} or parsed.query:
        raise StoreError(
            f"the store cannot be {parsed.drivername!r}: write postgresql://… or sqlite:////path"
        )
    if not Path(parsed.database or "").is_absolute():
        raise StoreError("the store's SQLite file must be an absolute path: sqlite:////path")
    return parsed.set(drivername="sqlite")


def _sqlite(path: Path) -> Engine:
    engine = sa.create_engine(
        URL.create("sqlite", database=str(path)),
        hide_parameters=True,
        pool_timeout=_DEADLINE_SECONDS,
        connect_args={"timeout": _BUSY_MILLISECONDS / 1000, "check_same_thread": False},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: _RawConnection, record: object) -> None:
    del record
    # Python's driver begins transactions by itself, later than we need, and not for DDL.
    connection.isolation_level = None
    cursor = connection.cursor()
    # A file system that cannot do this keeps its own mode, which is slower and as safe.
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    # Functions named in another program's schema are not run for us.
    cursor.execute("PRAGMA trusted_schema = OFF")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    # One that begins as a reader and then writes can fail in between, whatever it waits.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql(url: URL) -> Engine:
    engine = sa.create_engine(
        url,
        hide_parameters=True,
        pool_pre_ping=True,
        pool_timeout=_DEADLINE_SECONDS,
        connect_args={"connect_timeout": 5},
    )
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _prepare_postgresql(connection: _RawConnection, record: object) -> None:
    del record
    cursor = connection.cursor()
    # Times are stored without zone; CURRENT_TIMESTAMP would otherwise be the server's own.
    cursor.execute("SET TIME ZONE 'UTC'")
    cursor.execute("SET statement_timeout = '15s'")
    cursor.execute("SET lock_timeout = '5s'")
    cursor.execute("SET idle_in_transaction_session_timeout = '60s'")
    cursor.close()
    connection.commit()


def _may_try_again(error: Exception) -> bool:
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        # The low byte; the rest says why it is busy.
        return getattr(original, "sqlite_errorcode", 0) & 0xFF in _SQLITE_BUSY
    return getattr(original, "sqlstate", None) in _TRY_AGAIN


def _is_second_decision(error: IntegrityError) -> bool:
    words = str(error.orig)
    return "ix_decisions_final" in words or words.endswith("permission_decisions.interaction_id")


def _words(error: Exception) -> str:
    """What the database says, in one line, without the values it was given."""
    original = (error.orig if isinstance(error, DBAPIError) else None) or error
    said = getattr(getattr(original, "diag", None), "message_primary", None) or str(original)
    return next(iter(str(said).strip().splitlines()), type(original).__name__)
