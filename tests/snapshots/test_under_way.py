"""A snapshot whose call is under way stays, however old it is and however many there are."""

import os
import signal
import threading
from dataclasses import replace
from datetime import timedelta
from functools import partial

import anyio
import anyio.to_thread
import pytest

from ironcurtain_proxy.auto_confirm.snapshot_guard import Safekeeping
from ironcurtain_proxy.model.escalation import Escalation, EscalationId
from ironcurtain_proxy.model.request import ArgumentFact, PathValue
from ironcurtain_proxy.snapshots.faults import SnapshotError
from ironcurtain_proxy.snapshots.retention import Retention, prune
from ironcurtain_proxy.snapshots.snapshot import forget
from ironcurtain_proxy.snapshots.storage import locked, remove_place
from ironcurtain_proxy.snapshots.under_way import hold
from tests.fakes import FakeClock
from tests.questions import a_question
from tests.snapshots.dying_processes import in_a_child
from tests.snapshots.snapshot_fixture import NOW, Scene, names_in, real

pytestmark = pytest.mark.requirement("B-62")

NOTHING = Retention(count=0)


def test_it_stays_until_the_call_has_ended(place: Scene) -> None:
    held = hold(place.take(place.work / "f").place)
    assert prune(place.snapshots, NOW + timedelta(days=300)) == ()
    assert prune(place.snapshots, NOW, NOTHING) == ()
    assert prune(place.snapshots, NOW, Retention(bytes=0)) == ()
    held.release()
    held.release()
    assert prune(place.snapshots, NOW, NOTHING) == ("one",)


def test_the_newer_ones_go_instead_of_it_and_no_others(place: Scene) -> None:
    held = hold(place.take(place.work / "f", name="s0").place)
    for count in (1, 2, 3):
        moment = NOW + timedelta(minutes=count)
        place.take(place.work / "f", name=f"s{count}", now=moment)
    assert prune(place.snapshots, NOW, Retention(count=2)) == ("s1",)
    assert names_in(place.snapshots) == ["s0", "s2", "s3"]
    held.release()


def test_a_proxy_that_is_killed_holds_nothing(place: Scene) -> None:
    snapshot = place.take(place.work / "f")

    def die() -> None:
        hold(snapshot.place)
        assert prune(place.snapshots, NOW, NOTHING) == ()
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_child(die) == -signal.SIGKILL
    assert prune(place.snapshots, NOW, NOTHING) == ("one",)


def test_what_is_removed_cannot_be_held(place: Scene) -> None:
    snapshot = place.take(place.work / "f")
    remove_place(snapshot.place)
    with pytest.raises(FileNotFoundError):
        hold(snapshot.place)
    snapshot = place.take(place.work / "f", name="two")
    (snapshot.place / "manifest.json").unlink()
    with pytest.raises(SnapshotError):
        hold(snapshot.place)


def test_one_that_is_about_to_be_begun_is_not_taken_for_remains(place: Scene) -> None:
    place.snapshots.mkdir(parents=True)
    with locked(place.snapshots):
        (place.snapshots / "one").mkdir()
        assert prune(place.snapshots, NOW) == ()
    assert prune(place.snapshots, NOW) == ("one",)


def test_one_is_taken_while_others_are_removed(place: Scene) -> None:
    enough = threading.Event()

    def remove() -> None:
        while not enough.is_set():
            prune(place.snapshots, NOW)

    removing = threading.Thread(target=remove)
    removing.start()
    try:
        for number in range(150):
            forget(place.take(place.work / "f", name=f"s{number}"))
    finally:
        enough.set()
        removing.join()


def a_write(scene: Scene, number: int) -> Escalation:
    path = real(scene.work / "f")
    fact = ArgumentFact(
        name="path",
        roles=("write-path",),
        values=(PathValue(text=str(path), path=path),),
    )
    asked = a_question(identifier=f"00000000-0000-4000-8000-{number:012}")
    return replace(asked, request=replace(asked.request, arguments=(fact,)))


def keeping(scene: Scene, clock: FakeClock) -> Safekeeping:
    return Safekeeping(directory=scene.snapshots, workspace=real(scene.work), clock=clock, quiet=0)


@pytest.mark.anyio
async def test_calls_of_a_session_keep_theirs_until_they_end(place: Scene) -> None:
    clock = FakeClock()
    guards = keeping(place, clock)
    # More than are watched at a time.
    calls = [a_write(place, number) for number in range(20)]
    for call in calls:
        assert await guards.prepare(call)
    clock.seconds = timedelta(days=30).total_seconds()
    removed = await anyio.to_thread.run_sync(partial(prune, place.snapshots, clock.now()))
    assert removed == ()
    for call in calls:
        await guards.ended(EscalationId(call.id))
    assert len(prune(place.snapshots, clock.now())) == 20


@pytest.mark.anyio
async def test_a_session_removes_old_ones_though_it_takes_none(place: Scene) -> None:
    clock = FakeClock()
    clock.seconds = (NOW - clock.now()).total_seconds() + timedelta(days=7).total_seconds()
    place.take(place.work / "f", name="kept")
    place.take(place.work / "f", name="old", now=NOW - timedelta(seconds=1))
    guards = keeping(place, clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(guards.run)
        with anyio.fail_after(20):
            while names_in(place.snapshots) != ["kept"]:
                await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_session_that_ends_holds_nothing(place: Scene) -> None:
    guards = keeping(place, FakeClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(guards.run)
        assert await guards.prepare(a_write(place, 1))
        tasks.cancel_scope.cancel()
    assert len(prune(place.snapshots, NOW, NOTHING)) == 1


@pytest.mark.anyio
async def test_a_directory_that_cannot_be_read_is_a_line_in_the_log(
    place: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    loop = place.root / "loop"
    loop.symlink_to(loop)
    guards = Safekeeping(directory=loop, workspace=None, clock=FakeClock(), quiet=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(guards.run)
        with anyio.fail_after(20):
            while "old snapshots are not removed" not in caplog.text:
                await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
