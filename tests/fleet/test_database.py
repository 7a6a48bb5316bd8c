"""Rows of an intruder, and servers that do not answer, keep no page and no relay from working."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.engine import Connection

from ironcurtain_proxy.auto_confirm.store.store import open_store
from ironcurtain_proxy.fleet import database, relay
from ironcurtain_proxy.fleet.database import Board, DatabaseError, FleetDatabase
from ironcurtain_proxy.fleet.logins import Account, Words, digest_of
from ironcurtain_proxy.fleet.relay import Relay
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes, seconds_left, this_process, utc_now
from ironcurtain_proxy.mailbox.messages import request_bytes, request_name
from tests.fakes import FakeClock
from tests.questions import a_question
from tests.signed_answers import needing


@pytest.fixture
def found(postgres_url: str) -> Iterator[FleetDatabase]:
    made = FleetDatabase(postgres_url)
    made.prepare()
    yield made
    made.close()


@pytest.fixture
def carried(tmp_path: Path, found: FleetDatabase) -> Iterator[tuple[Relay, str]]:
    """A relay, and the question that waits in its mailbox."""
    place = tmp_path / "mailbox"
    place.mkdir(mode=0o700)
    question = replace(a_question(), signing=needing(1), created=utc_now())
    question = replace(question, deadline=question.created.replace(year=2100))
    raw = request_bytes(question, this_process(), host="web-1")
    (place / request_name(question.id)).write_bytes(raw)
    (place / request_name(question.id)).chmod(0o600)
    made = Relay(Mailboxes([place], None), found, "home", lambda _: None)
    yield made, str(question.id)
    made.run(lambda: True)  # closes its connection


def test_a_database_without_an_encoding_is_read_as_any_other(
    postgres_url: str, tmp_path: Path
) -> None:
    """There the driver gives bytes for words, unless it is told otherwise."""
    parsed = sa.make_url(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE plain TEMPLATE template0 ENCODING 'SQL_ASCII'")
        try:
            url = parsed.set(database="plain").render_as_string(hide_password=False)
            made = FleetDatabase(url)
            made.prepare()
            assert made.known("home") == frozenset()
            with psycopg.connect(url, autocommit=True) as plain:
                plain.execute(_ROW.format("'{}'", "now()", "NULL").encode())
                plain.execute(b"UPDATE ironcurtain_questions SET host = E'\\xff'")
            # No text in any encoding: the page says that the database is of no use, and goes on.
            with pytest.raises(DatabaseError):
                Board(made).pending(utc_now())
            made.close()
            open_store(url, tmp_path, FakeClock()).close()
        finally:
            connection.execute("DROP DATABASE plain WITH (FORCE)")


_ROW = """INSERT INTO ironcurtain_questions (id, home, host, digest, request, asked, ends)
    VALUES (gen_random_uuid(), 'home', repeat('m', 9000), '', {}, {}, {})"""
ROWS = [
    _ROW.format("'{}'", "now()", "'infinity'"),
    _ROW.format("'{}'", "'-infinity'", "NULL"),
    _ROW.format("'{}'", "'4000-01-01 BC'", "'200000-01-01'"),
    _ROW.format("convert_to(repeat('[', 100000), 'utf8')", "now()", "NULL"),
    _ROW.format("convert_to(repeat('x', 9000000), 'utf8')", "'2000-01-01'", "NULL"),
    """INSERT INTO ironcurtain_answers (question, hash, body)
    SELECT id, repeat('h', 100000), 'x' FROM ironcurtain_questions""",
    "SELECT pg_notify('ironcurtain_home', i::text) FROM generate_series(1, 5000) i",
]


def test_no_row_keeps_the_others_from_being_shown_or_sent(
    found: FleetDatabase, postgres_url: str, carried: tuple[Relay, str]
) -> None:
    one, identifier = carried
    one.step()
    board = Board(found)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for words in ROWS:
            connection.execute(words.encode())
            assert [each.id for each in board.pending(utc_now())] == [identifier], words
            assert found.answers("home", [], []) == [], words
            one.step()


_TABLES = ("ironcurtain_questions", "ironcurtain_answers", "ironcurtain_logins")
RETYPED = [
    "ironcurtain_questions ALTER request TYPE text USING convert_from(request, 'utf8')",
    "ironcurtain_questions ALTER host TYPE integer USING 1",
    "ironcurtain_questions ALTER home TYPE jsonb USING '[]'",
    "ironcurtain_questions ALTER id TYPE text USING '[' || id",
    "ironcurtain_answers ALTER body TYPE text USING '{'",
    "ironcurtain_answers ALTER body TYPE jsonb USING '{}'",
    "ironcurtain_answers ALTER outcome TYPE jsonb USING '[1]'",
    "ironcurtain_logins ALTER word TYPE jsonb USING '[]'",
    "ironcurtain_logins ALTER said TYPE text USING repeat('[', 100000)",
    f"ironcurtain_logins ALTER said TYPE jsonb USING '{'[' * 5000}{']' * 5000}'",
]


@pytest.mark.parametrize("change", RETYPED, ids=range(len(RETYPED)))
def test_a_table_with_other_columns_is_a_database_that_is_away(
    found: FleetDatabase, postgres_url: str, carried: tuple[Relay, str], change: str
) -> None:
    """Whoever owns the database changes it under a page and a relay that run."""
    one, identifier = carried
    one.step()
    words, who = Words(found), Account(id="ada", name="")
    page = words.give("page", who, 100)
    assert found.put_answer(identifier, b"{}") is not None
    looks: list[Callable[[], object]] = [
        one.step,
        one._bring,
        lambda: Board(found).pending(utc_now()),
        lambda: found.outcome(identifier, "x"),
        lambda: found.put_answer(identifier, b"{}"),
        lambda: words.said("page", page),
        words.pages,
    ]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        try:
            connection.execute(f"ALTER TABLE {change}".encode())
            for look in looks:
                with suppress(DatabaseError):
                    look()
        finally:
            connection.execute(f"DROP TABLE {', '.join(_TABLES)}".encode())
    one._sent = None
    one.step()
    assert [each.id for each in Board(found).pending(utc_now())] == [identifier]


def test_the_machine_that_is_shown_is_the_one_that_asked(
    found: FleetDatabase, postgres_url: str, carried: tuple[Relay, str]
) -> None:
    """Whoever writes to the database lets a person approve for what they take for another one."""
    one, _ = carried
    one.step()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(b"UPDATE ironcurtain_questions SET host = 'only-for-trying'")
    (shown,) = Board(found).pending(utc_now())
    assert shown.directory.name == "web-1"


def test_a_question_whose_row_somebody_removed_is_sent_again(
    found: FleetDatabase,
    postgres_url: str,
    carried: tuple[Relay, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "_BEAT_SECONDS", 0.0)
    one, identifier = carried
    one.step()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(b"DELETE FROM ironcurtain_questions")
    for _ in range(2):
        one.step()
    assert [each.id for each in Board(found).pending(utc_now())] == [identifier]


def test_a_server_that_takes_a_question_and_never_answers_is_left(found: FleetDatabase) -> None:
    backends: list[int] = []
    with pytest.MonkeyPatch.context() as patch:

        def stopped(one: Connection) -> object:
            backends.append(int(one.exec_driver_sql("SELECT pg_backend_pid()").scalar() or 0))
            os.kill(backends[0], signal.SIGSTOP)
            patch.setattr(database, "_ANSWER_SECONDS", 0.3)
            return one.exec_driver_sql("SELECT 1").scalar()

        try:
            with pytest.raises(DatabaseError, match="does not answer"):
                found.run(stopped)
            patch.undo()
            assert found.known("home") == frozenset()
        finally:
            os.kill(backends[0], signal.SIGCONT)


def test_answers_that_do_not_count_fill_no_disk(
    found: FleetDatabase, postgres_url: str, carried: tuple[Relay, str]
) -> None:
    """Whoever has logged in to the page may send any number of them."""
    one, identifier = carried
    one.step()
    for number in range(database._MOST_WAITING + 1):
        sent = found.put_answer(identifier, b"%d %b" % (number, b"x" * 1000))
        assert (sent is None) is (number == database._MOST_WAITING)
    given = found.answers("home", [], [])
    found.exchange("home", [], [], [(each, database.NOT_COUNTED) for each in given[1:]])
    found.exchange("home", [], [], [(given[0], database.COUNTED)])
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        size = b"SELECT outcome, max(length(body)) FROM ironcurtain_answers GROUP BY 1 ORDER BY 1"
        assert connection.execute(size).fetchall() == [
            ("counted", 1002), ("not counted", 0), (None, 1004),
        ]  # fmt: skip
    # Its machine has looked at some: an answer comes through again.
    assert found.put_answer(identifier, b"{}") is not None


def test_a_relay_that_runs_forgets_what_ended_long_ago(
    postgres_url: str, carried: tuple[Relay, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = carried
    monkeypatch.setattr(relay, "_ANEW_SECONDS", 0.0)
    one.step()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(b"""INSERT INTO ironcurtain_answers (question, hash, body, at)
            VALUES (gen_random_uuid(), 'old', '', now() - interval '31 days')""")
        one.step()
        assert connection.execute(b"SELECT FROM ironcurtain_answers").fetchall() == []


def test_the_oldest_login_of_a_person_ends_where_there_are_too_many(found: FleetDatabase) -> None:
    words, bob = Words(found), Account(id="bob", name="Bob")
    other = words.give("page", Account(id="ada", name="", groups=("a", "b")), 100)
    given = [words.give("page", bob, 100 + number) for number in range(18)]
    said = [words.said("page", one) for one in given]
    assert said == [None, None, *[bob] * 16]
    assert words.said("page", other) == Account(id="ada", name="", groups=("a", "b"))
    assert words.said("ticket", other) is None
    assert words.pages() == {digest_of(one) for one in [other, *given[2:]]}


@pytest.mark.parametrize("days", [-2, 2])
def test_a_question_is_answered_where_machine_and_database_have_other_clocks(
    found: FleetDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """By the database's clock its deadline has passed, or comes in days."""
    here = utc_now() + timedelta(days=days)
    monkeypatch.setattr(relay, "utc_now", lambda: here)
    question = replace(a_question(), signing=needing(1), created=here)
    question = replace(question, deadline=here + timedelta(hours=1))
    place = tmp_path / "mailbox"
    place.mkdir(mode=0o700)
    file = place / request_name(question.id)
    file.write_bytes(request_bytes(question, this_process()))
    file.chmod(0o600)
    one = Relay(Mailboxes([place], None), found, "home", lambda _: None)
    try:
        one.step()
    finally:
        one.run(lambda: True)  # closes its connection
    (shown,) = Board(found).pending(utc_now())
    assert shown.id == str(question.id)
    assert 0 < (seconds_left(shown.request, utc_now()) or 0) <= timedelta(hours=1).total_seconds()
    assert found.put_answer(str(question.id), b"{}") is not None
    late = "SELECT ends > now() + interval '2 hours' FROM ironcurtain_questions"
    assert found.run(lambda each: each.exec_driver_sql(late).scalar()) is False
