"""Questions and answers of many machines, in PostgreSQL.

    questions   one row for each question that waits on a machine: the bytes of its request
    answers     signed answers, as they will lie in the mailbox of that machine
    logins      who has logged in to the page, by the digest of a random word

The database is a mailbox that cannot approve. Whoever writes to it can hide or delay a question; an
answer counts at the machine by its signature alone, which covers the digest of the request that the
machine itself has written.

The row is the truth, and a notice (`NOTIFY`) only wakes: each machine has a channel of its own, and
reads again every few seconds besides.

What is shown is computed from the bytes of the request alone, and so is the digest that a person
signs. A row that was changed is another question, which the machine never asked.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import Final, TypeVar, cast

import psycopg
import sqlalchemy as sa
from msgspec import Struct, convert
from msgspec.structs import asdict, replace
from psycopg import sql
from psycopg.abc import PQGen
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.mailbox.answering import SentAnswer
from ironcurtain_proxy.mailbox.display import summary, visible
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest
from ironcurtain_proxy.mailbox.messages import (
    MAX_RESPONSE_BYTES,
    read_request,
    read_signed,
    request_name,
)

T = TypeVar("T")

QUESTIONS_CHANNEL: Final = "ironcurtain_questions"
COUNTED: Final = "counted"
NOT_COUNTED: Final = "not counted"
_LOCK: Final = 0x1C_F1EE7
_CONNECT_SECONDS: Final = 5
_ANSWER_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.1
LARGEST_REQUEST: Final = 8 << 20
_MOST_BYTES: Final = 64 << 20
"""The most bytes of the questions that a page shows: one machine must not fill its memory."""
_MOST_SHOWN: Final = 1000
_AT_ONCE: Final = 200
_MOST_WAITING: Final = 512
"""The most answers to a question that its machine has not looked at: whoever logs in could fill the
disk. What does not count is emptied."""
_STATEMENTS: Final = dict(
    re.findall(
        r"^-- (\w+)\n((?:(?!-- ).*\n)+)",
        Path(__file__).with_suffix(".sql").read_text("utf-8"),
        re.MULTILINE,
    )
)
"""What the database is asked, by name."""


class DatabaseError(IronCurtainError):
    """The database does not do what it was asked. The message holds no password."""


class SentQuestion(Struct, frozen=True, kw_only=True):
    """A question as a row."""

    id: str
    host: str
    """The name of the machine, as it says."""
    request: bytes
    asked: datetime
    left: float | None
    """Seconds until its deadline: the database's clock may be another one than the machine's."""


class ShownQuestion(Struct, frozen=True):
    """What a page reads of a row. Of the other columns an intruder could make it fail for all."""

    id: str
    host: str
    request: bytes
    left: float | None = None
    """Seconds until its deadline, by the database's clock alone."""


class WaitingAnswer(Struct, frozen=True):
    """An answer that its machine has not looked at."""

    question: str
    hash: str
    body: bytes


class _Timely(psycopg.Connection[object]):
    """A connection that waits for some seconds, whatever the server at its other end does."""

    def wait(
        self, gen: PQGen[T], interval: float = _LOOK_SECONDS, timeout: float | None = None
    ) -> T:
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, _ANSWER_SECONDS)
        except psycopg.OperationalError:
            # In the middle of an answer: nothing more can be asked here.
            self.close()
            raise psycopg.OperationalError("the server does not answer") from None


def _connected(
    _dialect: object, _record: object, _words: object, given: dict[str, object]
) -> psycopg.Connection[object]:
    connect = cast("Callable[..., psycopg.Connection[object]]", _Timely.connect)
    return connect(**given)


class FleetDatabase:
    """The tables."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet.

        Raises:
            ConfigurationError: it is no address of PostgreSQL.
        """
        try:
            parsed = sa.make_url(url)
        except (ArgumentError, ValueError):
            parsed = None  # its message would repeat the address, which may hold a password
        if parsed is None or parsed.drivername not in {"postgresql", "postgres"}:
            raise ConfigurationError("--database: write postgresql://USER@HOST/NAME")
        self.where = parsed.render_as_string(hide_password=True)
        self._engine = sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            hide_parameters=True,
            pool_pre_ping=True,
            pool_timeout=_CONNECT_SECONDS,
            connect_args={
                "connect_timeout": _CONNECT_SECONDS,
                # Of a database without an encoding (SQL_ASCII) the driver gives bytes for words.
                "client_encoding": "utf-8",
                "options": "-c statement_timeout=15s -c lock_timeout=5s",
                # A server whose address is gone answers nothing, and the system waits two hours.
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
            },
        )
        sa.event.listen(self._engine, "do_connect", _connected)

    def run(self, work: Callable[[Connection], T]) -> T:
        """Do something in one transaction.

        Raises:
            DatabaseError: it was not done.
        """
        try:
            with self._engine.begin() as connection:
                return work(connection)
        except (SQLAlchemyError, ValueError, RecursionError) as error:
            # Also words that are no text, and columns of another type than ours.
            raise DatabaseError(f"{self.where}: {_words(error)}") from None

    def prepare(self) -> None:
        """Make the tables, if they are not there. A reader's account needs no right to do so.

        Raises:
            DatabaseError: it was not done.
        """

        def made(connection: Connection) -> None:
            there = connection.exec_driver_sql("SELECT to_regclass('ironcurtain_logins')").scalar()
            if there is None:
                # Two that make the same table at once would disturb each other.
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
                connection.exec_driver_sql(_STATEMENTS["tables"])

        self.run(made)

    def listener(self, channel: str, *, alone: bool = False) -> "Listener":
        """Return what waits for notices in a channel. Nothing is connected yet.

        Args:
            channel: the channel.
            alone: refuse to wait while another does so alone.
        """
        return Listener(self._engine, self.where, channel, alone)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    # --- a machine's end -------------------------------------------------------------------------

    def known(self, home: str) -> frozenset[str]:
        """Return the open questions of a machine's mailboxes, and forget what ended long ago."""
        self.run(lambda one: one.exec_driver_sql(_STATEMENTS["forget"]))
        return self.beat(home)

    def exchange(
        self,
        home: str,
        asked: Sequence[SentQuestion],
        ended: Collection[str],
        outcomes: Sequence[tuple[WaitingAnswer, str]],
    ) -> None:
        """Write what is new on a machine: questions, ends of questions, outcomes of answers."""
        rows = [{"home": home, **asdict(one)} for one in asked]
        told = [{"q": one.question, "hash": one.hash, "outcome": word} for one, word in outcomes]

        def write(connection: Connection) -> None:
            if rows:
                # Nobody else's row is changed, also if somebody has guessed an id.
                connection.execute(_sql("ask"), rows)
            if ended:
                connection.execute(_sql("end"), {"home": home, "ids": list(ended)})
            if told:
                connection.execute(_sql("tell"), told)
            if rows or ended:
                connection.execute(_sql("notify"), {"channel": QUESTIONS_CHANNEL})

        self.run(write)

    def beat(self, home: str) -> frozenset[str]:
        """Note that a machine still has its open questions. Return those that the rows name."""
        return self.run(lambda one: frozenset(one.execute(_sql("beat"), {"home": home}).scalars()))

    def answers(
        self, home: str, known: Collection[str], full: Collection[str]
    ) -> list[WaitingAnswer]:
        """Return answers that a machine has not looked at.

        Args:
            home: the machine's mailboxes.
            known: hashes of answers that are being looked at.
            full: questions that take none now.
        """
        given = {"home": home, "known": list(known), "full": list(full)}
        return self.run(lambda one: _read_rows(one.execute(_sql("answers"), given), WaitingAnswer))

    # --- the page's end --------------------------------------------------------------------------

    def waiting(self, shown: Collection[str]) -> tuple[list[str], list[ShownQuestion]]:
        """Return the ids of open questions, the oldest first, and those that are not yet known.

        Args:
            shown: the ids of those that the caller knows.
        """

        def read(connection: Connection) -> tuple[list[str], list[ShownQuestion]]:
            ids = list(connection.execute(_sql("open"), {"most": _MOST_SHOWN}).scalars())
            missing = [one for one in ids if one not in shown]
            return ids, _read_rows(
                connection.execute(_sql("requests"), {"ids": missing}), ShownQuestion
            )

        return self.run(read)

    def put_answer(self, question: str, body: bytes) -> str | None:
        """Write an answer. Return its hash, or None if its question takes none any more."""
        digest = hashlib.sha256(body).hexdigest()

        def write(connection: Connection) -> str | None:
            given = {"q": question, "hash": digest, "body": body}
            home = connection.execute(_sql("home"), given).scalar()
            if home is None:
                return None
            connection.execute(_sql("answer"), given)
            connection.execute(_sql("notify"), {"channel": channel_of(str(home))})
            return digest

        return self.run(write)

    def outcome(self, question: str, digest: str) -> str | None:
        """Return what the machine said of an answer, or None if it has not looked at it."""
        given = {"q": question, "hash": digest}
        found = self.run(lambda one: one.execute(_sql("outcome"), given).scalar())
        return None if found is None else str(found)


class Listener(Struct, eq=False):
    """A connection that waits for notices."""

    engine: sa.Engine
    where: str
    channel: str
    alone: bool
    _connection: psycopg.Connection[tuple[object, ...]] | None = None

    def wait(self, seconds: float) -> bool:
        """Return True at a notice, or False after some seconds without one.

        Raises:
            DatabaseError: the connection ended. The next call connects again.
        """
        try:
            return any(True for _ in self._notices(seconds))
        except (SQLAlchemyError, psycopg.Error, OSError) as error:
            self.close()
            raise DatabaseError(f"{self.where}: {_words(error)}") from None

    def _notices(self, seconds: float) -> Iterator[object]:
        if self._connection is None:
            pooled = self.engine.raw_connection()
            found = cast("psycopg.Connection[tuple[object, ...]]", pooled.driver_connection)
            pooled.detach()
            self._connection = found
            found.autocommit = True
            if self.alone and not found.execute(_ALONE, (self.channel,)).fetchall()[0][0]:
                self.close()
                raise DatabaseError(_COPY)
            found.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))
        yield from self._connection.notifies(timeout=seconds, stop_after=1)

    def close(self) -> None:
        """Close the connection; harmless if repeated."""
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                self._connection.close()
            self._connection = None


_ALONE: Final = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_COPY: Final = (
    "another relay carries questions under this machine's name: end it, or, where the machine is a "
    "copy of another one, give it a hostname and an /etc/machine-id of its own"
)


@cache
def _sql(name: str) -> sa.TextClause:
    most = {"size": _MOST_BYTES, "at_once": _AT_ONCE, "waiting": _MOST_WAITING}
    largest = {"answer": MAX_RESPONSE_BYTES, "request": LARGEST_REQUEST}
    return sa.text(_STATEMENTS[name].format(**most, **largest))


def _read_rows(rows: sa.CursorResult[object], kind: type[T]) -> list[T]:
    """Return rows. Whoever owns the database may have made other columns of ours.

    Raises:
        ValueError: they are no such rows.
    """
    return [convert(dict(row), kind) for row in rows.mappings()]


def channel_of(home: str) -> str:
    """Return the channel of the notices for a machine's mailboxes."""
    return f"ironcurtain_{home}"


def _words(error: Exception) -> str:
    """Return the database's message in one line, without the values of a statement."""
    original = (error.orig if isinstance(error, DBAPIError) else None) or error
    said = getattr(getattr(original, "diag", None), "message_primary", None) or str(original)
    return next(iter(str(said).strip().splitlines()), type(original).__name__)


# --- the page's questions -------------------------------------------------------------------------


_OUTCOME_SECONDS: Final = 2.0
_STEP_SECONDS: Final = 0.02


class Board:
    """The questions as they were read last."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database
        self._shown: dict[str, PendingRequest | None] = {}

    def pending(self, now: datetime) -> list[PendingRequest]:
        """Return the open questions, the oldest first.

        Raises:
            DatabaseError: it is away.
        """
        ids, new = self._database.waiting(self._shown.keys())
        fresh = {one.id: _read(one, now) for one in new}
        known = self._shown | fresh
        self._shown = {name: known[name] for name in ids if name in known}
        return [one for one in self._shown.values() if one is not None]

    def answer(
        self, one: PendingRequest, body: bytes, is_ended: Callable[[], bool] = lambda: False
    ) -> SentAnswer:
        """Send a signed answer, and wait for what its machine says of it.

        Raises:
            DatabaseError: it is away, and the answer may have been sent or not.
        """
        told, asked = summary(one), (one.id, one.request.digest)
        signed = read_signed(body)
        if isinstance(signed, str) or (signed.question, signed.digest) != asked:
            return SentAnswer(f"not answered: the signature is for another question: {told}")
        name = self._database.put_answer(one.id, body)
        if name is None:
            return SentAnswer(f"too late, or too many answers wait for its machine: {told}")
        end = monotonic() + _OUTCOME_SECONDS
        while (outcome := self._database.outcome(one.id, name)) is None:
            if monotonic() >= end or is_ended():
                where = visible(one.directory.name)
                return SentAnswer(f"signed; {where} has not looked at it yet: {told}", taken=True)
            sleep(_STEP_SECONDS)
        if outcome == COUNTED:
            word = f"signed ({one.request.signatures} needed)" if signed.approved else "denied"
            return SentAnswer(f"{word}: {told}", taken=True)
        what = "its machine does not accept it" if outcome == NOT_COUNTED else "not answered"
        return SentAnswer(f"{what} (is the key in reviewers.json?): {told}", waits=True)


def _read(one: ShownQuestion, now: datetime) -> PendingRequest | None:
    """Return a question, or None if its bytes are no request that signatures settle.

    Its deadline is by the clock of `now`: that of its machine may be another one.
    """
    request = read_request(request_name(one.id), one.request)
    if request is None or not request.signatures:
        return None
    expires = None if one.left is None else now + timedelta(seconds=one.left)
    request = replace(request, expires=expires, ends=None)
    # The row's name of the machine is for requests of earlier versions: nothing signs that.
    return PendingRequest(Path("/") / (request.host or one.host).replace("/", "-"), request)
