"""The write-ahead log of SQLite is copied into the file where no commit waits for it."""

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import pytest

from ironcurtain_proxy.auto_confirm import engine_knowledge
from ironcurtain_proxy.auto_confirm.engine_knowledge import LazyStore
from ironcurtain_proxy.auto_confirm.reviewer import LedgerError
from ironcurtain_proxy.auto_confirm.store import database
from ironcurtain_proxy.auto_confirm.store.rows import StoreError, StoreLostError
from ironcurtain_proxy.auto_confirm.store.store import Store
from tests.auto_confirm.store.specimens import auto_approved
from tests.program import until

T = TypeVar("T")

BACKFILL = slice(96, 100)
"""Of the log's index: how many of its pages are in the file."""


def copied_pages(path: Path) -> int:
    with path.with_name(f"{path.name}-shm").open("rb") as index:
        found: tuple[int] = struct.unpack("=I", index.read(BACKFILL.stop)[BACKFILL])
    return found[0]


def path_of(store: Store) -> Path:
    file = store._database.file
    assert file is not None
    return file.path


def filled(store: Store, count: int = 400) -> None:
    for _ in range(count):
        auto_approved(store)


def test_no_commit_copies_the_log_and_the_upkeep_does(sqlite_store: Store) -> None:
    filled(sqlite_store)
    path = path_of(sqlite_store)
    log = path.with_name(f"{path.name}-wal")
    assert log.stat().st_size > 1100 * 4096, "SQLite's own limit is 1,000 pages"
    assert copied_pages(path) == 0
    sqlite_store.copy_log()
    assert copied_pages(path) > 1000


def test_little_is_not_copied(sqlite_store: Store) -> None:
    filled(sqlite_store, database._COPY_AFTER // 4)
    sqlite_store.copy_log()
    assert copied_pages(path_of(sqlite_store)) == 0


def test_the_log_is_copied_while_others_write(sqlite_store: Store) -> None:
    faults: list[StoreError] = []
    has_ended = threading.Event()

    def copy() -> None:
        while not has_ended.is_set():
            try:
                sqlite_store._database._uncopied = database._COPY_AFTER
                sqlite_store.copy_log()
            except StoreError as error:
                faults.append(error)

    copying = threading.Thread(target=copy)
    copying.start()
    filled(sqlite_store, 100)
    has_ended.set()
    copying.join()
    assert faults == []
    assert copied_pages(path_of(sqlite_store)) > 0
    sqlite_store._database.look_for_damage()


def test_the_log_of_a_file_that_was_replaced_is_not_copied(sqlite_store: Store) -> None:
    filled(sqlite_store, database._COPY_AFTER)
    path = path_of(sqlite_store)
    aside = path.with_name("aside")
    os.rename(path, aside)  # noqa: PTH104
    path.write_bytes(b"")
    before = aside.read_bytes()
    with pytest.raises(StoreLostError, match="removed or replaced"):
        sqlite_store.copy_log()
    assert aside.read_bytes() == before


@pytest.mark.anyio
async def test_a_session_copies_the_log_after_its_first_question(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_knowledge, "COPY", 0.01)
    looked: list[object] = []

    async def in_thread(work: Callable[[], T], /) -> T:
        looked.append(work)
        return await anyio.to_thread.run_sync(work)

    duty = engine_knowledge.Upkeep(store=LazyStore(lambda: sqlite_store), in_thread=in_thread)
    path = path_of(sqlite_store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(duty.run)
        await anyio.to_thread.run_sync(filled, sqlite_store, database._COPY_AFTER)
        assert copied_pages(path) == 0
        assert len(looked) == 1, "it looks for abandoned rows alone"
        duty.used.set()
        await until(lambda: copied_pages(path) > 0)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("opened", [False, True])
async def test_an_outage_is_said_once_and_a_server_has_no_log_to_copy(
    sqlite_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    opened: bool,
) -> None:
    monkeypatch.setattr(engine_knowledge, "COPY", 0.001)
    monkeypatch.setattr(engine_knowledge, "LOOK", 0.001)
    failures = 0

    async def in_thread(work: Callable[[], T], /) -> T:
        nonlocal failures
        failures += 1
        await anyio.lowlevel.checkpoint()
        raise LedgerError("the store failed: connection refused")

    store = LazyStore(lambda: sqlite_store)
    if opened:
        # As on a server: there is no file.
        store.get()
        monkeypatch.setattr(sqlite_store._database, "file", None)
    duty = engine_knowledge.Upkeep(store=store, in_thread=in_thread)
    duty.used.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(duty.run)
        await until(lambda: failures > 20)
        tasks.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == [
        "what killed proxies left open stays so: the store failed: connection refused"
    ]
