"""What happens to the store when the world fails: a clear fault, and nothing lost or half done."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from ironcurtain_proxy.auto_confirm.store.tables import INTERACTIONS
from tests.auto_confirm.store.direct import open_task, record_interaction, recorded, trail
from tests.auto_confirm.store.specimens import (
    approval,
    auto_approved,
    ends,
    interaction,
    reviewed,
    task,
)
from tests.fakes import FakeClock

ROOT = Path(__file__).parents[3]


def program(state: Path, fault: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "tests.auto_confirm.store.failing_disk_process",
        str(state),
        fault,
    ]


def whole(state: Path) -> dict[int, list[str]]:
    """Each interaction in a sound database, with its decisions."""
    with open_store(None, state, FakeClock()) as store:
        check = sa.text("PRAGMA integrity_check")
        assert store.read(lambda c: c.execute(check).scalar_one()) == "ok"
        ids = sa.select(INTERACTIONS.c.id)
        found = store.read(lambda c: list(c.execute(ids).scalars()))
        return {one: [d.decision for d in trail(store, one)] for one in found}


@pytest.mark.requirement("B-179")
def test_a_full_disk_is_a_fault_and_what_was_written_stays(tmp_path: Path) -> None:
    result = subprocess.run(
        program(tmp_path / "state", "disk full"),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=50,
    )
    *said, failure = result.stdout.splitlines()
    assert failure == f"failed: {tmp_path}/state/interactions.db: disk I/O error"
    assert len(said) >= 3
    found = whole(tmp_path / "state")
    # What was said to be written is, and every interaction has its decision.
    assert {int(line) for line in said} <= found.keys()
    assert set(map(tuple, found.values())) == {("approved",)}
    with open_store(None, tmp_path / "state", FakeClock()) as store:
        auto_approved(store)


@pytest.mark.requirement("B-179")
def test_a_process_killed_in_the_middle_leaves_whole_interactions(tmp_path: Path) -> None:
    said = []
    with subprocess.Popen(
        program(tmp_path / "state", "killed"), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            said.append(int(line))
            if len(said) == 25:
                process.kill()
                break
    found = whole(tmp_path / "state")
    assert set(said) <= found.keys()
    assert set(map(tuple, found.values())) == {("approved",)}


def without_roots_powers() -> list[str]:
    """Root writes wherever it likes, unless it gives that up."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root needs setpriv for this")
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner", "--"]


@pytest.mark.parametrize("there", [False, True], ids=["no store yet", "a store"])
def test_a_directory_that_cannot_be_written_is_a_fault(tmp_path: Path, there: bool) -> None:
    # Not ours to close: a directory of our own would be made writable again by nobody.
    state = tmp_path / "outer" / "state"
    state.parent.mkdir()
    if there:
        open_store(None, state, FakeClock()).close()
        (state / "interactions.db").chmod(0o400)
        state.chmod(0o500)
    else:
        state.parent.chmod(0o500)
    result = subprocess.run(
        [*without_roots_powers(), *program(state, "read-only")],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    (line,) = result.stdout.splitlines()
    assert line.startswith("failed: ")
    assert "Permission denied" in line
    state.parent.chmod(0o700)
    assert state.exists() is there


@contextmanager
def another_writer(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process in the middle of a transaction that does not end."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def test_a_lock_that_is_not_given_back_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "state" / "interactions.db"
    with open_store(None, tmp_path / "state", FakeClock(), deadline_seconds=0.05) as store:
        identifier = reviewed(store)
        with another_writer(path):
            with pytest.raises(StoreError, match="locked"):
                auto_approved(store)
            with pytest.raises(StoreError, match="locked"):
                store.end(identifier, ends())
            # Readers are not in its way.
            assert recorded(store, identifier) is not None
            with open_store(None, tmp_path / "state", FakeClock()) as second:
                assert len(second.learned().safe_paths) == 5
        auto_approved(store)


def test_a_writer_has_the_lock_before_it_looks(tmp_path: Path) -> None:
    path = tmp_path / "state" / "interactions.db"
    with (
        open_store(None, tmp_path / "state", FakeClock()) as store,
        closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other,
    ):

        def work(connection: sa.Connection) -> None:
            assert connection.execute(sa.text("SELECT count(*) FROM safe_paths")).scalar() == 5
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")

        store._database.write(work)
        other.execute("BEGIN IMMEDIATE")


def test_a_lock_that_is_given_back_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "state" / "interactions.db"
    with open_store(None, tmp_path / "state", FakeClock(), deadline_seconds=40) as store:
        written: list[int] = []
        with another_writer(path) as other:
            writer = threading.Thread(target=lambda: written.append(auto_approved(store)))
            writer.start()
            writer.join(timeout=0.7)
            assert written == []
            other.execute("COMMIT")
            writer.join(timeout=40)
        assert len(written) == 1


def test_threads_share_one_store(store: Store) -> None:
    written: list[int] = []

    def work() -> None:
        written.extend(reviewed(store) for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=50)
    assert len(set(written)) == 80
    for identifier in written:
        assert [one.decision for one in trail(store, identifier)] == ["escalated", "approved"]


@pytest.mark.parametrize("turn", range(5))
def test_reviewers_that_answer_at_once_get_one_yes(store: Store, turn: int) -> None:
    identifier = record_interaction(store, interaction())
    open_task(store, identifier, task())
    taken: list[bool] = []
    together = threading.Barrier(4)

    def answer(name: str) -> None:
        together.wait(timeout=30)
        taken.append(store.end(identifier, ends(by=f"reviewer:{name}")))

    threads = [threading.Thread(target=answer, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(taken) == [False, False, False, True]
    decided = [one.decision for one in trail(store, identifier)]
    assert decided == ["escalated", "approved"]


def test_connections_that_the_server_ended_are_made_anew(
    postgres_url: str, postgres_server: str, tmp_path: Path
) -> None:
    with open_store(postgres_url, tmp_path, FakeClock()) as store:
        identifier = auto_approved(store)
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [make_url(postgres_url).database],
            )
            assert ended.fetchall() != []
        assert recorded(store, identifier) is not None


def test_a_reader_changes_nothing(postgres_url: str, tmp_path: Path) -> None:
    with (
        open_store(postgres_url, tmp_path, FakeClock()) as store,
        pytest.raises(StoreError, match="read-only transaction"),
    ):
        store.read(lambda c: c.execute(sa.text("DELETE FROM safe_paths")))


def test_tables_that_vanish_are_a_fault_that_repeats_no_values(store: Store) -> None:
    store._database.write(lambda c: c.execute(sa.text("DROP TABLE permission_decisions")))
    with pytest.raises(StoreError) as caught:
        record_interaction(
            store,
            interaction(session="secret-session", status="auto_approved"),
            approval(reason="secret-reason"),
        )
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert recorded(store, 1) is None
