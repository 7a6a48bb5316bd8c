"""What a call changed beside what it declared is told."""

import os
import shutil
from pathlib import Path

import pytest

from ironcurtain_proxy.snapshots.watch import MOST_NAMED, Effects, SideEffects, WatchLimits
from tests.snapshots.snapshot_fixture import Scene, real

pytestmark = pytest.mark.requirement("B-64")


@pytest.fixture
def work(place: Scene) -> Path:
    for name in ("a", "b", "src/c", "src/deep/d"):
        path = place.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return place.work


def watching(work: Path, *declared: str, limits: WatchLimits | None = None) -> SideEffects:
    places = [real(work / name) for name in declared]
    return SideEffects([real(work)], places, limits or WatchLimits(seconds=60))


def test_a_call_that_keeps_to_its_word_has_no_side_effects(work: Path) -> None:
    watch = watching(work, "a", "new", "src/deep")
    (work / "a").write_text("after")
    (work / "new").mkdir()
    (work / "new" / "x").write_text("after")
    (work / "src" / "deep" / "d").unlink()
    effects = watch.report()
    assert effects == Effects()
    assert effects.is_none


def test_what_it_did_beside_is_told_by_kind(work: Path) -> None:
    watch = watching(work, "a")
    (work / "b").write_text("after")
    (work / "made").mkdir()
    (work / "made" / "x").write_text("after")
    shutil.rmtree(work / "src" / "deep")
    effects = watch.report()
    assert effects.created == (f"{work}/made", f"{work}/made/x")
    assert effects.changed == (f"{work}/b",)
    assert effects.deleted == (f"{work}/src/deep", f"{work}/src/deep/d")
    assert effects.complete
    assert not effects.is_none


def test_a_change_that_hides_its_time_is_seen(work: Path) -> None:
    watch = watching(work)
    found = (work / "b").stat()
    (work / "b").write_text("x")
    os.utime(work / "b", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert watch.report().changed == (f"{work}/b",)


def test_a_change_of_permissions_is_seen(work: Path) -> None:
    watch = watching(work)
    (work / "b").chmod(0o777)
    (work / "src").chmod(0o777)
    assert watch.report().changed == (f"{work}/b", f"{work}/src")


def test_a_link_is_not_followed(work: Path, place: Scene) -> None:
    (place.root / "outside").mkdir()
    (work / "link").symlink_to(place.root / "outside")
    watch = watching(work)
    (place.root / "outside" / "x").write_text("x")
    assert watch.report() == Effects()


def test_no_more_than_a_hundred_are_named(work: Path) -> None:
    watch = watching(work)
    for count in range(MOST_NAMED + 7):
        (work / f"made{count}").write_text("x")
    effects = watch.report()
    assert (len(effects.created), effects.more) == (MOST_NAMED, 7)


@pytest.mark.parametrize("limits", [WatchLimits(files=3), WatchLimits(seconds=-1)])
def test_what_could_not_be_looked_at_is_said_and_not_guessed(
    work: Path, limits: WatchLimits
) -> None:
    watch = watching(work, limits=limits)
    (work / "src" / "deep" / "x").write_text("x")
    (work / "src" / "x").write_text("x")
    effects = watch.report()
    assert not effects.complete
    assert effects.is_none, "nothing was seen there before, so nothing is said of it"


def test_a_place_that_cannot_be_reached_is_said(work: Path, place: Scene) -> None:
    (place.root / "link").symlink_to(work)
    assert not SideEffects([real(place.root / "link")], []).report().complete


def test_below_what_is_declared_nothing_is_a_side_effect(work: Path) -> None:
    watch = SideEffects([real(work)], [real(work.parent)])
    (work / "made").write_text("x")
    assert watch.report() == Effects()


def test_what_was_only_found_the_second_time_is_not_called_new(work: Path) -> None:
    watch = watching(work, limits=WatchLimits(files=4, seconds=60))
    (work / "a").unlink()
    (work / "b").unlink()
    effects = watch.report()
    assert effects.created == ()
    assert effects.deleted == (f"{work}/a", f"{work}/b")
    assert not effects.complete
