"""Access to a database: short transactions, deadlines, one kind of error.

SQLite is the default, with a write-ahead log: readers and the writer do not block each other. Every
writing transaction takes the lock when it begins, so that none fails halfway.
"""

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from ironcurtain_proxy.auto_confirm.store.files import (
    STORE_NAME,
    OpenFile,
    prepare_file,
    reused_file,
)
from ironcurtain_proxy.auto_confirm.store.rows import (
    AlreadyDecidedError,
    StoreError,
    StoreLostError,
)

T = TypeVar("T")

_DEADLINE_SECONDS: Final = 5.0
_BUSY_MILLISECONDS: Final = 500
"""Seconds that SQLite waits for a lock before the deadline is checked."""
_PAUSE_SECONDS: Final = 0.02
_POSTGRESQL: Final = frozenset({"postgresql", "postgres", "postgresql+psycopg"})
_TRY_AGAIN: Final = frozenset({"40001", "40P01", "55P03"})
"""SQLSTATE: serialization failure, deadlock, lock not available. Nothing was written."""
_SQLITE_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SQLITE_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_CANCELLED: Final = "57014"
"""SQLSTATE: the statement took too long."""
_COPY_AFTER: Final = 50
"""Writes of this process after which it copies the write-ahead log into the file."""
_MOST_PAGES: Final = 20_000
"""Pages of the log from which on a commit copies it after all: 80 MiB."""
_LOG: Final = "ironcurtain_log"
"""The key of the write-ahead log in a connection's `info`."""


class Database:
    """An open database. Thread-safe.

    Attributes:
        where: the file or the server, without a password, for messages.
        doubtful: the file is damaged, or no longer the store.
    """

    def __init__(
        self, engine: Engine, where: str, deadline_seconds: float, file: OpenFile | None = None
    ) -> None:
        self.where = where
        self.doubtful = False
        self.file = file
        self._deadline = deadline_seconds
        self._engine = engine
        self._is_closed = False
        event.listen(engine, "checkin", self._when_given_back)
        self._uncopied = 0
        """Writes since this process last copied the log."""
        self._turn = threading.Lock()
        """Serialises the writing threads of this process: SQLite has one writer."""
        self._writer = engine.execution_options(writes=True)
        # SQLite's readers see one state without it.
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
        """Do `work` in one transaction, completely or not at all.

        `work` is repeated after a conflict with another process, so it must be repeatable.

        Raises:
            AlreadyDecidedError: it would have decided an interaction twice.
            StoreError: it cannot be written, or not in time.
        """
        if self.file is None:
            return self._run(self._writer, work)
        if not self._turn.acquire(timeout=self._deadline):
            raise StoreError(f"{self.where}: database is locked")
        try:
            done = self._run(self._writer, work)
            self._uncopied += 1
        finally:
            self._turn.release()
        # Replaced meanwhile: the write went to a file without a name.
        self._see_that_it_is_in_place()
        return done

    def copy_log(self) -> None:
        """Copy the write-ahead log into an SQLite file, beside readers and writers.

        SQLite would do it within a commit: two syncs of the disk, for which everyone waits who has
        something to write. Does nothing while there is little to copy.

        Raises:
            StoreError: it cannot be copied.
        """
        if self.file is None or self._uncopied < _COPY_AFTER:
            return
        self._uncopied = 0
        self._see_that_it_is_in_place()
        if self.file.was_overwritten():
            self._look_through(self.file)
        try:
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").close()
            finally:
                connection.close()
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._fault(error) from error

    def look_for_damage(self) -> None:
        """Check a whole SQLite file; PostgreSQL checks itself.

        Raises:
            StoreLostError: it is damaged.
        """
        if self.file is None:
            return
        said = self.read(_damage)
        if said:
            raise self._lost(f"the file is damaged: {said}")

    def close(self) -> None:
        """Close all connections, those in use after their use. Repeating it is harmless."""
        self._is_closed = True
        self._engine.dispose()

    def _when_given_back(self, connection: object, record: ConnectionPoolEntry) -> None:
        del connection
        if self._is_closed:
            record.invalidate()

    def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        end = time.monotonic() + self._deadline
        while True:
            self._see_that_it_is_in_place()
            if self.file is not None and self.file.was_overwritten():
                self._look_through(self.file)
            try:
                with engine.begin() as connection:
                    self._see_that_log_is_in_place(connection)
                    return work(connection)
            except (SQLAlchemyError, sqlite3.Error) as error:
                if not _may_try_again(error) or time.monotonic() >= end:
                    raise self._fault(error) from error
            # Random, to avoid the rhythm of other waiting processes.
            time.sleep(_PAUSE_SECONDS * (0.5 + random.random()))  # noqa: S311  no secret

    def _see_that_it_is_in_place(self) -> None:
        if self.file is not None and not self.file.is_in_place():
            raise self._lost("the file was removed or replaced")

    def _look_through(self, file: OpenFile) -> None:
        """Check a file that another program wrote to, together with its log."""
        engine, said = _sqlite(file.path, file), "it could not be read"
        try:
            # A new connection, without the pages that the others hold in memory. The others are
            # closed while it is open: the last connection to close would copy the log.
            with engine.begin() as connection:
                said = _damage(connection)
                self._engine.dispose()
        except (SQLAlchemyError, sqlite3.Error) as error:
            said = _words(error)
        finally:
            if said:
                file.discard_log()
            engine.dispose()
        if said:
            raise self._lost(f"the file was overwritten: {said}")

    def _see_that_log_is_in_place(self, connection: Connection) -> None:
        if self.file is None:
            return
        log = self.file.log_now()
        known = connection.info.get(_LOG)
        # INVARIANT: while a connection is open SQLite leaves the log that it made where it is.
        if known is not None and known != log:
            raise self._lost("the file's write-ahead log was removed or replaced")
        connection.info[_LOG] = self.file.log = log

    def _lost(self, why: str) -> StoreLostError:
        self.doubtful = True
        return StoreLostError(f"{self.where}: {why}")

    def _fault(self, error: Exception) -> StoreError:
        if isinstance(error, IntegrityError) and _is_second_decision(error):
            return AlreadyDecidedError("the interaction was already decided")
        words = f"{self.where}: {_words(error)}"
        if not isinstance(error, DBAPIError | sqlite3.Error) or _is_no_loss(error):
            return StoreError(words)
        self.doubtful = self.doubtful or _code(error) in _SQLITE_DAMAGED
        return StoreLostError(words)


def open_database(
    url: str | None,
    state_dir: Path,
    *,
    create: bool = True,
    in_use: bool = False,
    deadline_seconds: float = _DEADLINE_SECONDS,
) -> Database:
    """Open a database, without a check of its content.

    Args:
        url: `postgresql://…`, `sqlite:////absolute/path`, or None if a file in the state directory.
        state_dir: absolute; made private.
        create: whether a missing SQLite file is made.
        in_use: whether this process may still have the SQLite file open; none is made then.
        deadline_seconds: how long one transaction may wait for others.

    Raises:
        StoreError: it cannot be used.
    """
    own, parsed = url is None, _parsed(url, state_dir)
    if parsed.drivername != "sqlite":
        where = parsed.render_as_string(hide_password=True)
        return Database(_postgresql(parsed), where, deadline_seconds)
    path = Path(parsed.database or "")
    file = reused_file(path) if in_use else prepare_file(path, create=create, own_directory=own)
    return Database(_sqlite(path, file), str(path), deadline_seconds, file)


def sqlite_path(url: str | None, state_dir: Path) -> Path | None:
    """Return the path of the SQLite file, or None if the store is on a server.

    Raises:
        StoreError: the URL cannot be used.
    """
    parsed = _parsed(url, state_dir)
    return Path(parsed.database or "") if parsed.drivername == "sqlite" else None


def _parsed(url: str | None, state_dir: Path) -> URL:
    return _parse(url) if url else URL.create("sqlite", database=str(state_dir / STORE_NAME))


def _parse(url: str) -> URL:
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):
        # Its message would repeat the URL, which may hold a password.
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


def _sqlite(path: Path, file: OpenFile) -> Engine:
    engine = sa.create_engine(
        URL.create("sqlite", database=str(path)),
        hide_parameters=True,
        pool_timeout=_DEADLINE_SECONDS,
        connect_args={"timeout": _BUSY_MILLISECONDS / 1000, "check_same_thread": False},
    )
    event.listen(engine, "connect", partial(_prepare_sqlite, file))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(file: OpenFile, connection: DBAPIConnection, record: object) -> None:
    del record
    if not file.is_in_place():
        # Checked before the first read: a read replays the log beside the file, and this log
        # belongs to another file.
        raise StoreLostError(f"{file.path}: the file was removed or replaced")
    # Python's driver begins transactions by itself, later than we need, and not for DDL.
    connection.isolation_level = None
    cursor = connection.cursor()
    # A file system that cannot do this keeps its own mode, which is slower and as safe.
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    # `copy_log` does it where nobody waits.
    cursor.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")
    cursor.execute("PRAGMA foreign_keys = ON")
    # Functions in another program's schema are not run.
    cursor.execute("PRAGMA trusted_schema = OFF")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    # One that begins as a reader and then writes can fail in between, however long it waits.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql(url: URL) -> Engine:
    try:
        engine = sa.create_engine(
            url,
            hide_parameters=True,
            pool_pre_ping=True,
            pool_timeout=_DEADLINE_SECONDS,
            # Of a database without an encoding (SQL_ASCII) the driver gives bytes for words.
            connect_args={"connect_timeout": 5, "client_encoding": "utf-8"},
        )
    except ImportError:
        raise StoreError(
            "the store is on PostgreSQL, whose driver is missing: install "
            "ironcurtain-proxy[postgres]"
        ) from None
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _prepare_postgresql(connection: DBAPIConnection, record: object) -> None:
    del record
    cursor = connection.cursor()
    # Times are stored without zone; CURRENT_TIMESTAMP would otherwise be the server's own.
    cursor.execute("SET TIME ZONE 'UTC'")
    cursor.execute("SET statement_timeout = '15s'")
    cursor.execute("SET lock_timeout = '5s'")
    cursor.execute("SET idle_in_transaction_session_timeout = '60s'")
    cursor.close()
    connection.commit()


def _damage(connection: Connection) -> str:
    """Return the damage of a SQLite database, if any."""
    said = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    return "" if said == "ok" else " ".join(said.split())


def _code(error: Exception) -> int | str | None:
    """Return SQLite's code or the SQLSTATE, or None without either."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        # The low byte; the rest says why.
        return int(getattr(original, "sqlite_errorcode", 0)) & 0xFF
    code: str | None = getattr(original, "sqlstate", None)
    return code


def _may_try_again(error: Exception) -> bool:
    return _code(error) in _SQLITE_BUSY | _TRY_AGAIN


def _is_no_loss(error: Exception) -> bool:
    """Return whether an error is the statement's own, with the database intact."""
    if isinstance(error, IntegrityError | DataError) or _may_try_again(error):
        return True
    return _code(error) == _CANCELLED


def _is_second_decision(error: IntegrityError) -> bool:
    words = str(error.orig)
    return "ix_decisions_final" in words or words.endswith("permission_decisions.interaction_id")


def _words(error: Exception) -> str:
    """Return the database's message, in one line, without the statement's values."""
    original = (error.orig if isinstance(error, DBAPIError) else None) or error
    said = getattr(getattr(original, "diag", None), "message_primary", None) or str(original)
    return next(iter(str(said).strip().splitlines()), type(original).__name__)
