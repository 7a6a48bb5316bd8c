"""The tables: as the document has them, made or completed, never destroyed."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from ironcurtain_proxy.auto_confirm.store import tables
from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from ironcurtain_proxy.auto_confirm.store.tables import METADATA
from tests.auto_confirm.store.direct import pending_of_others, recorded
from tests.auto_confirm.store.specimens import auto_approved, reviewed
from tests.fakes import FakeClock
from tests.tables import table

OURS = {"ironcurtain_schema_version", *METADATA.tables}

DOCUMENT = {
    "claude_interactions": [
        ("status", "TEXT", "'pending'"),
        ("escalation_target", "TEXT", None),
        ("escalation_reason", "TEXT", None),
        ("escalation_time", "TIMESTAMP", None),
        ("escalation_task_id", "INTEGER", None),
        ("auto_approved", "BOOLEAN", "0"),
        ("risk_score", "FLOAT", "0.5"),
        ("confidence_score", "FLOAT", "0.5"),
        ("session_name", "TEXT", None),
        ("prompt_type", "TEXT", None),
        ("prompt_text", "TEXT", None),
        ("file_path", "TEXT", None),
        ("action_requested", "TEXT", None),
        ("response", "TEXT", None),
        ("matched_pattern_id", "INTEGER", None),
        ("created_at", "TIMESTAMP", "CURRENT_TIMESTAMP"),
        ("responded_at", "TIMESTAMP", None),
    ],
    "permission_decisions": [
        ("id", "INTEGER", None),
        ("interaction_id", "INTEGER", None),
        ("decision", "TEXT", None),
        ("reason", "TEXT", None),
        ("auto_decision", "BOOLEAN", "0"),
        ("escalation_target", "TEXT", None),
        ("created_at", "TIMESTAMP", "CURRENT_TIMESTAMP"),
    ],
    "approval_patterns": [
        ("id", "INTEGER", None),
        ("name", "TEXT", None),
        ("operation", "TEXT", None),
        ("scope_regex", "TEXT", None),
        ("session_type", "TEXT", None),
        ("risk_level", "TEXT", None),
        ("auto_approve", "BOOLEAN", "0"),
        ("created_at", "TIMESTAMP", "CURRENT_TIMESTAMP"),
        ("created_by", "TEXT", None),
        ("usage_count", "INTEGER", "0"),
        ("success_rate", "FLOAT", "1.0"),
    ],
    "safe_paths": [
        ("id", "INTEGER", None),
        ("path", "TEXT", None),
        ("operation", "TEXT", None),
        ("created_at", "TIMESTAMP", "CURRENT_TIMESTAMP"),
    ],
}


def file_of(tmp_path: Path) -> Path:
    return tmp_path / "state" / "interactions.db"


def sql(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """The rows of the last statement."""
    path.parent.mkdir(exist_ok=True)
    rows: list[tuple[object, ...]] = []
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
    return rows


def columns(path: Path, table: str) -> dict[str, tuple[str, str | None]]:
    return {
        str(name): (str(kind), None if default is None else str(default))
        for _, name, kind, _, default, _ in sql(path, f"PRAGMA table_info({table})")
    }


def opened(tmp_path: Path) -> Store:
    return open_store(None, tmp_path / "state", FakeClock())


@pytest.mark.requirement(
    *("B-119", "B-120", "B-121", "B-122", "B-123", "B-124", "B-125", "B-126"),
    *("B-127", "B-128", "B-129", "B-130", "B-131", "B-132", "B-133", "B-134"),
    *("B-135", "B-136", "B-137", "B-138", "B-139", "B-140", "B-141", "B-142"),
    *("B-143", "B-144", "B-145", "B-146", "B-147", "B-148", "B-149", "B-150"),
)
def test_types_and_defaults_are_those_of_the_document(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for title, expected in DOCUMENT.items():
        found = columns(file_of(tmp_path), title)
        assert {name: found.get(name) for name, _, _ in expected} == {
            name: (kind, default) for name, kind, default in expected
        }


@pytest.mark.requirement("B-128", "B-129", "B-130", "B-135", "B-136", "B-137", "B-146", "B-147")
def test_keys_and_constraints_are_those_of_the_document(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = file_of(tmp_path)
    for title in DOCUMENT:
        ((text,),) = sql(path, f"SELECT sql FROM sqlite_master WHERE name = '{title}'")  # noqa: S608
        assert "PRIMARY KEY AUTOINCREMENT" in str(text)
    (key,) = sql(path, "PRAGMA foreign_key_list(permission_decisions)")
    assert key[2:5] == ("claude_interactions", "interaction_id", "id")
    for statement in (
        "INSERT INTO approval_patterns (name, operation) VALUES ('a', 'x'), ('a', 'x')",
        "INSERT INTO approval_patterns (name) VALUES ('a')",
        "INSERT INTO approval_patterns (operation) VALUES ('a')",
        "INSERT INTO safe_paths (path) VALUES ('/tmp/')",
        "INSERT INTO safe_paths (path) VALUES (NULL)",
        "INSERT INTO permission_decisions (interaction_id) VALUES (1)",
        "INSERT INTO permission_decisions (decision) VALUES ('approved')",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            sql(path, statement)


@pytest.mark.requirement("B-127", "B-150")
def test_opening_again_changes_nothing(
    empty_url: str | None, tmp_path: Path, clock: FakeClock
) -> None:
    with open_store(empty_url, tmp_path / "state", clock) as store:
        identifier = reviewed(store)
    for _ in range(2):
        with open_store(empty_url, tmp_path / "state", clock) as store:
            assert len(store.learned().safe_paths) == 5
            assert recorded(store, identifier) is not None
            names = store.read(lambda c: set(sa.inspect(c).get_table_names()))
            assert names == OURS


FIRST: dict[str, list[str]] = {
    "as it was": ["DROP INDEX ix_interactions_created", "DROP TABLE ironcurtain_upkeep"],
    "with an index of that name": ["DROP TABLE ironcurtain_upkeep"],
    "with everything but the version": [],
}


@pytest.mark.requirement("B-127")
@pytest.mark.parametrize("lacking", FIRST.values(), ids=FIRST.keys())
def test_a_store_of_the_first_revision_learns_to_remove_what_is_old(
    empty_url: str | None, tmp_path: Path, clock: FakeClock, lacking: list[str]
) -> None:
    with open_store(empty_url, tmp_path / "state", clock) as store:
        identifier = reviewed(store)
        older = [*lacking, f"UPDATE {tables.VERSION_TABLE} SET version_num = '0001'"]  # noqa: S608
        store._database.write(lambda c: [c.execute(sa.text(line)) for line in older])
    clock.seconds = timedelta(days=91).total_seconds()
    for expected in (1, 0):
        with open_store(empty_url, tmp_path / "state", clock) as store:
            assert (recorded(store, identifier) is not None) is (expected == 1)
            assert store.begin_purge(timedelta(days=90)) == expected
            indexes = store.read(lambda c: sa.inspect(c).get_indexes("claude_interactions"))
            assert "ix_interactions_created" in {index["name"] for index in indexes}


def test_a_safe_path_that_the_operator_removed_stays_removed(tmp_path: Path) -> None:
    opened(tmp_path).close()
    sql(file_of(tmp_path), "DELETE FROM safe_paths WHERE path = '.git/'")
    with opened(tmp_path) as store:
        assert ".git/" not in {one.path for one in store.learned().safe_paths}


OLDER = """CREATE TABLE claude_interactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_name TEXT NOT NULL, prompt_type TEXT NOT NULL,
    prompt_text TEXT, file_path TEXT, action_requested TEXT, response TEXT,
    matched_pattern_id INTEGER, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    responded_at TIMESTAMP{more})"""
MORE = table("auto_confirm/store/schema.more", dict[str, str])


@pytest.mark.requirement("B-127")
@pytest.mark.parametrize("more", MORE.values(), ids=MORE.keys())
@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled"])
def test_an_older_table_is_completed_and_keeps_its_rows(
    tmp_path: Path, more: str, filled: bool
) -> None:
    path = file_of(tmp_path)
    sql(path, OLDER.format(more=more))
    if filled:
        sql(
            path,
            "INSERT INTO claude_interactions (session_name, prompt_type, response) "
            "VALUES ('old', 'edit', 'yes')",
        )
    for _ in range(2):
        with opened(tmp_path) as store:
            identifier = auto_approved(store)
            assert recorded(store, identifier) is not None
            # What was there before us is nobody's queue and no session's health.
            assert pending_of_others(store, "me") == 0
            assert recorded(store, 1) is None or not filled
    found = columns(path, "claude_interactions")
    for name, kind, _ in DOCUMENT["claude_interactions"]:
        assert found[name][0] == kind
    if filled:
        query = "SELECT session_name, prompt_type, response FROM claude_interactions WHERE id = 1"
        assert sql(path, query) == [("old", "edit", "yes")]
        query = "SELECT status, auto_approved, confidence_score FROM claude_interactions LIMIT 1"
        assert sql(path, query) == [("pending", 0, 0.5)]


@pytest.mark.requirement("B-127")
def test_an_older_table_on_postgresql_is_completed_too(postgres_url: str, tmp_path: Path) -> None:
    engine = sa.create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "CREATE TABLE claude_interactions (id SERIAL PRIMARY KEY, session_name TEXT, "
                "auto_approved BOOLEAN DEFAULT false, created_at TIMESTAMPTZ DEFAULT now())"
            )
        )
        connection.execute(sa.text("INSERT INTO claude_interactions (session_name) VALUES ('old')"))
    clock = FakeClock()
    with open_store(postgres_url, tmp_path, clock) as store:
        found = recorded(store, reviewed(store))
        assert found is not None
        assert found.created_at == clock.now()
    with engine.begin() as connection:
        names = connection.execute(sa.text("SELECT session_name FROM claude_interactions"))
        assert names.scalars().all() == ["old", "s1"]
    engine.dispose()


def test_the_other_tables_of_the_document_are_completed_too(tmp_path: Path) -> None:
    sql(
        file_of(tmp_path),
        "CREATE TABLE safe_paths (id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT UNIQUE NOT NULL)",
        "INSERT INTO safe_paths (path) VALUES ('/tmp/'), ('/srv/scratch/')",
        "CREATE TABLE permission_decisions (id INTEGER PRIMARY KEY AUTOINCREMENT, "
        "interaction_id INTEGER NOT NULL, decision TEXT NOT NULL)",
    )
    with opened(tmp_path) as store:
        assert {one.path for one in store.learned().safe_paths} >= {
            "/tmp/",
            "/srv/scratch/",
            ".git/",
        }
        reviewed(store)
        with pytest.raises(StoreError):
            store.read(lambda c: c.execute(sa.text("SELECT nothing FROM safe_paths")))


FOREIGN: dict[str, tuple[str, str]] = table(
    "auto_confirm/store/schema.foreign", dict[str, tuple[str, str]]
)


@pytest.mark.requirement("B-127")
@pytest.mark.parametrize(("statement", "why"), FOREIGN.values(), ids=FOREIGN.keys())
def test_what_cannot_be_completed_is_refused_and_left_as_it_was(
    tmp_path: Path, statement: str, why: str
) -> None:
    path = file_of(tmp_path)
    sql(path, statement)
    before = sql(path, "SELECT type, name, sql FROM sqlite_master")
    with pytest.raises(StoreError, match=why) as caught:
        opened(tmp_path)
    assert "\n" not in str(caught.value)
    assert sql(path, "SELECT type, name, sql FROM sqlite_master") == before


def test_rows_that_contradict_us_are_refused_and_left(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    sql(
        path,
        "CREATE TABLE permission_decisions (id INTEGER PRIMARY KEY AUTOINCREMENT, "
        "interaction_id INTEGER NOT NULL, decision TEXT NOT NULL)",
        "INSERT INTO permission_decisions (interaction_id, decision) "
        "VALUES (1, 'approved'), (1, 'rejected')",
    )
    with pytest.raises(StoreError, match="contradict"):
        opened(tmp_path)
    assert sql(path, "SELECT count(*) FROM permission_decisions") == [(2,)]
    assert sql(path, "SELECT name FROM sqlite_master WHERE name = 'safe_paths'") == []


def overwritten(path: Path) -> None:
    path.write_bytes(b"this is no database, " * 400)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def scrambled(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[24:8192] = bytes(8168)
    path.write_bytes(bytes(whole))


@pytest.mark.parametrize("damage", [overwritten, cut, scrambled])
def test_a_damaged_file_is_refused_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    with opened(tmp_path) as store:
        auto_approved(store)
    path = file_of(tmp_path)
    damage(path)
    kept = tmp_path / "kept"
    shutil.copy(path, kept)
    with pytest.raises(StoreError) as caught:
        opened(tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == kept.read_bytes()
