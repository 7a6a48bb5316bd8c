"""The views of one session."""

import shutil
import threading
from pathlib import Path
from unittest.mock import Mock

import anyio
import pytest

from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.transactions import transaction
from ironcurtain_proxy.transactions.transaction import Recovery, SessionViews
from ironcurtain_proxy.wiring import views
from ironcurtain_proxy.wiring.views import ShellViews
from tests.program import PATIENCE


def test_an_answer_does_not_wait_for_the_removal_of_a_large_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, removed = threading.Event(), threading.Event()
    discard = transaction.discard

    def slowly(directory: Path) -> None:
        goes_on.wait()
        discard(directory)
        removed.set()

    monkeypatch.setattr(views, "discard", slowly)
    session = SessionViews(tmp_path)
    (session.directory / "a" / "b").mkdir(parents=True)
    anyio.run(ShellViews(session, frozenset(), Recovery(tmp_path)).end, "a")
    assert (session.directory / "a").is_dir()
    goes_on.set()
    assert removed.wait(PATIENCE)
    assert not (session.directory / "a").exists()
    session.close()
    assert not session.directory.exists()


def test_no_call_waits_for_the_removal_of_what_killed_sessions_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Semaphore(0)
    discard = transaction.discard

    def slowly(directory: Path) -> None:
        begun.set()
        goes_on.wait()
        discard(directory)
        ended.release()

    monkeypatch.setattr(transaction, "discard", slowly)
    killed = [tmp_path / name for name in ("one", "two")]
    for one in killed:
        one.mkdir()
    own = ShellViews(SessionViews(tmp_path), frozenset(), Recovery(tmp_path))

    async def session() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(own.record_recovery, Mock(spec=Journal))
            await anyio.to_thread.run_sync(begun.wait)
            tasks.cancel_scope.cancel()

    anyio.run(session)
    goes_on.set()
    own.close()
    assert all(ended.acquire(timeout=PATIENCE) for _ in (*killed, own))
    assert not any(one.exists() for one in killed)


def test_a_removal_that_is_cut_off_is_no_commit_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = tmp_path / "session" / "view"
    view.mkdir(parents=True)
    for name in ("prepared", "ended", "recorded", "undone"):
        (view / name).write_text("")

    def killed(directory: Path) -> None:
        (directory / "ended").unlink()
        raise SystemExit

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(SystemExit):
        transaction.discard(view)
    monkeypatch.undo()
    recovery = Recovery(tmp_path)
    assert recovery.found == []
    recovery.close(is_recorded=True)
    assert not view.exists()
