"""A rollback puts back what was held and goes over nobody's later work."""

import resource
import shutil
import signal
import stat
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ironcurtain_proxy.snapshots.faults import ConflictError, NoSnapshotError, RollbackError
from ironcurtain_proxy.snapshots.rollback import find, listed, restore
from ironcurtain_proxy.snapshots.snapshot import Snapshot, finish
from ironcurtain_proxy.snapshots.storage import locked
from tests.snapshots.dying_processes import FAILED, in_a_child, kill_at, without_privileges
from tests.snapshots.snapshot_fixture import Scene, Seen, git, history, names_in, repository, seen

pytestmark = pytest.mark.requirement("B-62")


def words(place: Scene) -> dict[str, str]:
    return {path.name: path.read_text() for path in (place.work / "held").iterdir()}


def test_the_changes_are_told_by_kind(place: Scene, called: Snapshot) -> None:
    changes = restore("one", place.snapshots).changes
    top = place.work / "held"
    assert [(change.what, change.kind) for change in changes] == [
        (f"{top}/changed", "replaced"),
        (f"{top}/made", "removed"),
        (f"{top}/removed", "created"),
    ]
    assert words(place) == {"changed": "before", "removed": "before"}


@pytest.mark.parametrize("name", ["changed", "removed", "made", "of a person"])
def test_later_work_is_not_gone_over(place: Scene, called: Snapshot, name: str) -> None:
    (place.work / "held" / name).write_text("later work")
    left = seen(place.work)
    with pytest.raises(ConflictError) as raised:
        restore("one", place.snapshots)
    assert raised.value.conflicts == (str(place.work / "held" / name),)
    assert seen(place.work) == left
    restored = restore("one", place.snapshots, force=True)
    assert restored.conflicts == raised.value.conflicts
    assert words(place) == {"changed": "before", "removed": "before"}


def test_a_later_change_of_permissions_is_later_work(place: Scene, called: Snapshot) -> None:
    (place.work / "held" / "made").chmod(0o700)
    with pytest.raises(ConflictError):
        restore("one", place.snapshots)


def test_what_was_undone_by_hand_is_no_conflict(place: Scene, called: Snapshot) -> None:
    (place.work / "held" / "made").unlink()
    (place.work / "held" / "changed").write_text("before")
    restored = restore("one", place.snapshots)
    assert [Path(change.what).name for change in restored.changes] == ["removed"]


def test_without_a_record_of_what_the_call_left_only_force_puts_back(place: Scene) -> None:
    (place.work / "f").write_text("before")
    place.take(place.work / "f")
    assert restore("one", place.snapshots).changes == ()
    (place.work / "f").write_text("after")
    with pytest.raises(ConflictError, match="what the call left was not recorded"):
        restore("one", place.snapshots)
    restore("one", place.snapshots, force=True)
    assert (place.work / "f").read_text() == "before"


def test_work_after_a_rollback_is_safe_from_the_next(place: Scene, called: Snapshot) -> None:
    restore("one", place.snapshots)
    (place.work / "held" / "changed").write_text("later work")
    with pytest.raises(ConflictError):
        restore("one", place.snapshots)


def swap_for_a_link(place: Scene) -> Path:
    """The directory is another one now, reached by a link."""
    outside = place.root / "outside"
    (place.work / "held").rename(outside)
    (place.work / "held").symlink_to(outside)
    return outside


@pytest.mark.parametrize("force", [False, True])
def test_no_link_leads_a_rollback_elsewhere(place: Scene, force: bool) -> None:
    (place.work / "held").mkdir()
    (place.work / "held" / "f").write_text("before")
    snapshot = place.take(place.work / "held" / "f")
    (place.work / "held" / "f").write_text("after")
    finish(snapshot)
    outside = swap_for_a_link(place)
    left = seen(outside)
    with pytest.raises(RollbackError):
        restore("one", place.snapshots, force=force)
    assert seen(outside) == left


def test_a_link_in_place_of_a_file_is_replaced_not_written_through(place: Scene) -> None:
    target = place.root / "target"
    target.write_text("of others")
    (place.work / "f").write_text("before")
    snapshot = place.take(place.work / "f")
    (place.work / "f").unlink()
    (place.work / "f").symlink_to(target)
    finish(snapshot)
    restore("one", place.snapshots)
    assert (place.work / "f").read_text() == "before"
    assert not (place.work / "f").is_symlink()
    assert target.read_text() == "of others"


def test_a_rollback_makes_no_directory_that_was_not_held(place: Scene) -> None:
    (place.work / "d").mkdir()
    (place.work / "d" / "f").write_text("before")
    snapshot = place.take(place.work / "d" / "f")
    (place.work / "d" / "f").unlink()
    (place.work / "d").rmdir()
    finish(snapshot)
    with pytest.raises(RollbackError):
        restore("one", place.snapshots)
    assert names_in(place.work) == []


def prepare(place: Scene) -> None:
    top = repository(place.work)
    for name in ("a", "b", "c"):
        (top / "src" / name).mkdir()
        (top / "src" / name / "f").write_text(name)
    (top / "src" / "tight").mkdir(0o500)
    outside = place.root / "copied"
    outside.mkdir()
    (outside / "f").write_text("before")
    (outside / "link").symlink_to("f")


def do_everything(place: Scene) -> None:
    """Kinds change, directories come and go, a repository moves on."""
    top, outside = place.work, place.root / "copied"
    (outside / "f").unlink()
    (outside / "f").mkdir()
    (outside / "f" / "deep").write_text("after")
    (outside / "link").unlink()
    (outside / "link").write_text("after")
    (top / "src" / "a" / "f").write_text("after")
    (top / "src" / "b" / "f").unlink()
    (top / "src" / "b").rmdir()
    (top / "src" / "b").write_text("after")
    (top / "run.sh").unlink()
    (top / "new").mkdir()
    (top / "new" / "f").write_text("after")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "of the call")
    git(top, "checkout", "-q", "-b", "other")
    git(top, "branch", "-D", "feature")


def everything(place: Scene) -> object:
    found = {**seen(place.root / "copied"), **seen(place.work, leave_out=(".git",))}
    # Git itself works in the top directory: its time is not ours to say.
    del found[place.work]
    return found, history(place.work)


def test_a_rollback_that_was_killed_completes_when_it_is_run_again(place: Scene) -> None:
    prepare(place)
    before = everything(place)
    snapshot = place.take(place.root / "copied", place.work / "src", repository=place.work)
    do_everything(place)
    finish(snapshot)
    killed = 0
    for nth in range(1, 300):
        code = in_a_child(partial(kill_at, nth, partial(restore, "one", place.snapshots)))
        assert code in (0, -signal.SIGKILL), f"run again after {nth} changes"
        if code == 0:
            break
        killed += 1
    assert killed > 25
    assert everything(place) == before
    assert restore("one", place.snapshots).changes == ()
    assert not listed(place.snapshots)[0].is_interrupted


def turn_around(top: Path) -> None:
    """Each of these becomes another kind, or another of its kind, or is gone."""
    (top / "file to directory").unlink()
    (top / "file to directory").mkdir()
    (top / "file to directory" / "in it").write_text("after")
    shutil.rmtree(top / "directory to link")
    (top / "directory to link").symlink_to("file")
    shutil.rmtree(top / "gone")
    (top / "link").unlink()
    (top / "link").write_text("after")
    (top / "file").write_text("after")
    (top / "file").chmod(0o600)
    (top / "made").mkdir()
    (top / "made" / "in it").write_text("after")


def test_a_rollback_can_be_killed_at_any_point(place: Scene) -> None:
    top = place.work / "held"
    for name in ("directory to link", "gone"):
        (top / name / "below").mkdir(parents=True, mode=0o751)
        (top / name / "below" / "f").write_text("before")
        (top / name).chmod(0o710)
    for name in ("file to directory", "file"):
        (top / name).write_text("before")
    (top / "link").symlink_to("file")
    before = seen(top)
    snapshot = place.take(top)
    for nth in range(1, 100):
        turn_around(top)
        finish(snapshot)
        code = in_a_child(partial(kill_at, nth, partial(restore, "one", place.snapshots)))
        assert code in (0, -signal.SIGKILL)
        restore("one", place.snapshots)
        assert seen(top) == before, f"killed before change {nth}"
        if code == 0:
            break
    assert 30 < nth < 99


def test_later_work_between_two_tries_is_still_seen(place: Scene, called: Snapshot) -> None:
    code = in_a_child(partial(kill_at, 6, partial(restore, "one", place.snapshots)))
    assert code == -signal.SIGKILL
    assert listed(place.snapshots)[0].is_interrupted
    (place.work / "held" / "changed").write_text("later work")
    with pytest.raises(ConflictError):
        restore("one", place.snapshots)


def test_a_full_disk_ends_a_rollback_and_it_can_be_run_again(place: Scene) -> None:
    (place.work / "a").write_bytes(b"x" * 50_000)
    (place.work / "b").write_bytes(b"y" * 50_000)
    before = seen(place.work / "a") | seen(place.work / "b")
    snapshot = place.take(place.work / "a", place.work / "b")
    (place.work / "a").write_text("after")
    (place.work / "b").unlink()
    finish(snapshot)

    def full() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        restore("one", place.snapshots)

    assert in_a_child(full) == FAILED
    assert (place.work / "a").read_text() == "after", "whole or not at all"
    assert not (place.work / "b").exists()
    restore("one", place.snapshots)
    assert seen(place.work / "a") | seen(place.work / "b") == before
    assert names_in(place.work) == ["a", "b"]


def test_what_is_held_and_damaged_is_not_put_back(place: Scene, called: Snapshot) -> None:
    left = seen(place.work)
    for blob in (called.place / "blobs").iterdir():
        blob.write_text("tampered")
    with pytest.raises(RollbackError, match="damaged"):
        restore("one", place.snapshots)
    assert seen(place.work) == left


def test_two_rollbacks_at_once_do_not_meet(place: Scene, called: Snapshot) -> None:
    with locked(called.place), pytest.raises(RollbackError, match="in use"):
        restore("one", place.snapshots)


def test_the_beginning_of_an_id_is_enough_if_it_is_one(place: Scene) -> None:
    for name in ("abc-1", "abc-2", "abd", "ab"):
        place.take(place.work / "f", name=name)
    assert find("abd", place.snapshots) == "abd"
    assert find("abc-1", place.snapshots) == "abc-1"
    assert find("ab", place.snapshots) == "ab"
    for wrong in ("abc", "x", "", "../one", "."):
        with pytest.raises(NoSnapshotError):
            find(wrong, place.snapshots)
    with pytest.raises(NoSnapshotError):
        restore("nothing", place.snapshots)


def tight(place: Scene) -> tuple[Path, Seen, Snapshot]:
    """A call has worked in a directory that it was not allowed to write to."""
    held = place.work / "held"
    held.mkdir()
    (held / "f").write_text("before")
    (held / "gone").write_text("before")
    held.chmod(0o555)
    before = seen(held)
    snapshot = place.take(held)
    held.chmod(0o755)
    (held / "f").write_text("after")
    (held / "gone").unlink()
    return held, before, snapshot


def test_permissions_of_a_directory_do_not_hinder() -> None:
    def work(place: Scene) -> None:
        held, before, snapshot = tight(place)
        held.chmod(0o555)
        finish(snapshot)
        restore("one", place.snapshots)
        assert seen(held) == before

    assert without_privileges(work) == 0


def test_a_directory_that_nobody_may_look_into_is_only_forced() -> None:
    def work(place: Scene) -> None:
        held, before, snapshot = tight(place)
        held.chmod(0o000)
        finish(snapshot)
        with pytest.raises(ConflictError):
            restore("one", place.snapshots)
        restore("one", place.snapshots, force=True)
        assert seen(held) == before

    assert without_privileges(work) == 0


@pytest.mark.parametrize("name", ["changed", "removed", "made"])
def test_what_is_written_while_it_is_put_back_is_not_gone_over(
    place: Scene, called: Snapshot, name: str
) -> None:
    path = place.work / "held" / name

    def write(event: str, arguments: tuple[object, ...]) -> None:
        # What is there was looked at by then.
        if event == "os.rename" and str(arguments[1]).endswith("restoring.json"):
            path.write_text("of this very moment")

    def work() -> None:
        sys.addaudithook(write)
        restore("one", place.snapshots)

    assert in_a_child(work) == FAILED
    assert path.read_text() == "of this very moment"


def test_a_word_that_begins_no_id_does_not_mean_the_only_snapshot(
    place: Scene, called: Snapshot
) -> None:
    for wrong in ("typo", "onee", "ne", ""):
        with pytest.raises(NoSnapshotError):
            find(wrong, place.snapshots)


@pytest.mark.parametrize(("force", "dry_run"), [(False, False), (False, True), (True, True)])
def test_nothing_is_opened_up_by_a_rollback_that_only_tells_or_is_not_forced(
    force: bool, dry_run: bool
) -> None:
    def work(place: Scene) -> None:
        held, _, snapshot = tight(place)
        held.chmod(0o000)
        finish(snapshot)
        with suppress(ConflictError):
            restore("one", place.snapshots, force=force, dry_run=dry_run)
        assert stat.S_IMODE(held.stat().st_mode) == 0

    assert without_privileges(work) == 0
