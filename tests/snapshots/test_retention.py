"""What is kept, and for how long."""

import os
import signal
from datetime import timedelta
from functools import partial

import pytest

from ironcurtain_proxy.snapshots.retention import Retention, prune
from ironcurtain_proxy.snapshots.rollback import listed
from ironcurtain_proxy.snapshots.storage import locked
from tests.snapshots.dying_processes import in_a_child, kill_at
from tests.snapshots.snapshot_fixture import NOW, Scene, git, names_in, repository

pytestmark = pytest.mark.requirement("B-62")


def test_the_newest_fifty_are_kept(place: Scene) -> None:
    for count in range(53):
        place.take(place.work / "f", name=f"s{count}", now=NOW + timedelta(minutes=count))
    assert set(prune(place.snapshots, NOW + timedelta(hours=2))) == {"s0", "s1", "s2"}
    assert listed(place.snapshots)[0].manifest.id == "s52"
    assert prune(place.snapshots, NOW + timedelta(hours=2)) == ()


def test_nothing_is_kept_for_more_than_seven_days(place: Scene) -> None:
    place.take(place.work / "f")
    assert prune(place.snapshots, NOW + timedelta(days=7)) == ()
    assert prune(place.snapshots, NOW + timedelta(days=7, seconds=1)) == ("one",)
    assert names_in(place.snapshots) == []


def test_the_oldest_go_when_there_is_too_much(place: Scene) -> None:
    for count in range(3):
        (place.work / "f").write_bytes(os.urandom(1000))
        place.take(place.work / "f", name=f"s{count}", now=NOW + timedelta(minutes=count))
    assert prune(place.snapshots, NOW, Retention(bytes=3900)) == ("s0",)


def test_one_that_is_in_use_stays(place: Scene) -> None:
    snapshot = place.take(place.work / "f")
    with locked(snapshot.place):
        assert prune(place.snapshots, NOW, Retention(count=0)) == ()
    assert prune(place.snapshots, NOW, Retention(count=0)) == ("one",)


def test_what_is_no_snapshot_is_left_alone(place: Scene) -> None:
    place.take(place.work / "f")
    (place.snapshots / "README.txt").write_text("x")
    prune(place.snapshots, NOW, Retention(count=0))
    assert names_in(place.snapshots) == ["README.txt"]
    assert prune(place.root / "nowhere", NOW) == ()


def test_whatever_is_left_of_one_that_was_killed_is_cleared_away(place: Scene) -> None:
    top = repository(place.work)
    (place.root / "copied").mkdir()
    for nth in range(1, 100):
        take = partial(Scene.take, place, place.root / "copied", repository=top, name=f"s{nth}")
        code = in_a_child(partial(kill_at, nth, take))
        assert code in (0, -signal.SIGKILL)
        if code == 0:
            break
    assert nth > 15
    assert len(prune(place.snapshots, NOW)) > 10
    assert names_in(place.snapshots) == [f"s{nth}"]
    assert [one.manifest.id for one in listed(place.snapshots)] == [f"s{nth}"]
    assert git(top, "for-each-ref", "--format=%(refname)", "refs/ironcurtain").split() == [
        f"refs/ironcurtain/s{nth}"
    ]
