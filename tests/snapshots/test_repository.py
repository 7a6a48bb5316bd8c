"""A repository is held without being touched, and nothing that it configures is run."""

import os
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from ironcurtain_proxy.snapshots.faults import ConflictError, RollbackError, SnapshotError
from ironcurtain_proxy.snapshots.retention import Retention, prune
from ironcurtain_proxy.snapshots.rollback import restore
from ironcurtain_proxy.snapshots.snapshot import Snapshot, SnapshotLimits, finish, forget
from tests.snapshots.dying_processes import FAILED, in_a_child
from tests.snapshots.snapshot_fixture import NOW, Scene, git, history, names_in, repository, seen

pytestmark = pytest.mark.requirement("B-62")


@pytest.fixture
def top(place: Scene) -> Path:
    return repository(place.work)


def own(snapshot: Snapshot, *arguments: str) -> str:
    """Git in the snapshot's own repository."""
    return git(snapshot.place, "--git-dir", str(snapshot.place / "repository"), *arguments)


def test_taking_adds_one_ref_and_objects_and_changes_nothing(place: Scene, top: Path) -> None:
    # Git refreshes the index when it is asked, so it is asked first.
    told, before = history(top), seen(top)
    place.take(repository=top / "src")
    after = seen(top)
    new = {path.relative_to(top).parts for path in after.keys() - before.keys()}
    assert {parts[:3] for parts in new if parts[:2] != (".git", "objects")} == {
        (".git", "refs", "ironcurtain")
    }
    where = (top / ".git" / "objects", top / ".git" / "refs")
    changed = [path for path in before if before[path] != after.get(path)]
    assert [path for path in changed if not any(path.is_relative_to(d) for d in where)] == []
    assert history(top) == told


def test_the_commit_holds_the_work_tree_with_what_was_not_added(place: Scene, top: Path) -> None:
    snapshot = place.take(repository=top)
    listing = own(snapshot, "ls-tree", "-r", "--name-only", "refs/ironcurtain/one").split("\n")
    assert {"untracked.txt", "src/a.py", "staged.txt", "run.sh", "link"} <= set(listing)
    assert own(snapshot, "show", "refs/ironcurtain/one:src/a.py") == "a = 2\n"
    modes = own(snapshot, "ls-tree", "refs/ironcurtain/one", "run.sh", "link")
    assert modes.startswith("120000") or "100755" in modes
    own(snapshot, "fsck", "--strict")


def test_the_ref_holds_the_index_and_the_branches(place: Scene, top: Path) -> None:
    place.take(repository=top)
    assert git(top, "show", "refs/ironcurtain/one:staged.txt") == "staged\n"
    parents = git(top, "rev-parse", "refs/ironcurtain/one^@").split()
    assert parents == [git(top, "rev-parse", "main").strip()]


def test_what_was_not_committed_cannot_be_read_from_the_repository(place: Scene, top: Path) -> None:
    """The agent may read the repository's objects where the policy keeps it from the file."""
    (top / ".env").write_text("PASSWORD=hunter2\n")
    blob = git(top, "hash-object", "--no-filters", ".env").strip()
    place.take(repository=top)
    objects = git(top, "cat-file", "--batch-all-objects", "--batch-check")
    assert blob not in objects


Call = Callable[[Path], object]


def commit(top: Path) -> None:
    git(top, "commit", "-q", "-a", "-m", "second")


def checkout(top: Path) -> None:
    git(top, "stash")
    git(top, "checkout", "-q", "feature")


def detach(top: Path) -> None:
    git(top, "checkout", "-q", "--detach", "v1")


def reset_hard(top: Path) -> None:
    git(top, "reset", "-q", "--hard")


def delete_branch_and_tag(top: Path) -> None:
    git(top, "branch", "-D", "feature")
    git(top, "tag", "-d", "v1")


def new_branches(top: Path) -> None:
    git(top, "branch", "a/b")
    git(top, "checkout", "-q", "-b", "new")
    git(top, "branch", "-M", "main", "old")


def clean_and_pack(top: Path) -> None:
    git(top, "clean", "-f", "-d", "-q")
    git(top, "pack-refs", "--all")
    git(top, "gc", "-q", "--prune=now")


def merge_with_conflict(top: Path) -> None:
    git(top, "commit", "-q", "-a", "-m", "ours")
    git(top, "checkout", "-q", "feature")
    (top / "src" / "a.py").write_text("a = 3\n")
    git(top, "commit", "-q", "-a", "-m", "theirs")
    with pytest.raises(Exception, match="merge"):
        git(top, "merge", "main")


def remote(top: Path) -> None:
    git(top, "remote", "add", "elsewhere", "https://example.org/x.git")


def delete_commits(top: Path) -> None:
    """As thoroughly as it gets: the branch, its log and its objects."""
    git(top, "checkout", "-q", "--orphan", "empty")
    git(top, "rm", "-r", "-q", "-f", "--cached", ".")
    git(top, "branch", "-D", "main", "feature")
    git(top, "tag", "-d", "v1")
    git(top, "reflog", "expire", "--expire=now", "--all")
    git(top, "gc", "-q", "--prune=now")


@pytest.mark.parametrize(
    "call",
    [
        commit,
        checkout,
        detach,
        reset_hard,
        delete_branch_and_tag,
        new_branches,
        clean_and_pack,
        merge_with_conflict,
        remote,
        delete_commits,
    ],
    ids=lambda call: call.__name__,
)
def test_what_git_did_is_undone(place: Scene, top: Path, call: Call) -> None:
    def look() -> object:
        files = seen(top, leave_out=(".git",))
        del files[top]
        return files, history(top), (top / ".git" / "config").read_text()

    before = look()
    snapshot = place.take(repository=top)
    call(top)
    assert finish(snapshot).problem == ""
    restore("one", place.snapshots)
    assert look() == before
    git(top, "fsck", "--strict")
    assert not (top / ".git" / "MERGE_HEAD").exists()
    assert restore("one", place.snapshots).changes == ()


def test_a_look_with_git_status_is_no_later_work(place: Scene, top: Path) -> None:
    snapshot = place.take(repository=top)
    commit(top)
    finish(snapshot)
    os.utime(top / "run.sh", ns=(1, 1))
    index = (top / ".git" / "index").read_bytes()
    git(top, "status")
    assert (top / ".git" / "index").read_bytes() != index, "else this shows nothing"
    os.utime(top / "run.sh", ns=(2, 2))
    restore("one", place.snapshots)
    git(top, "status")
    assert restore("one", place.snapshots).changes == ()


def person_commits(top: Path) -> None:
    git(top, "commit", "-q", "--allow-empty", "-m", "of a person")


def person_stages(top: Path) -> None:
    (top / "later.txt").write_text("x")
    git(top, "add", "later.txt")


def person_switches(top: Path) -> None:
    git(top, "checkout", "-q", "-b", "person")


def person_edits(top: Path) -> None:
    (top / "src" / "a.py").write_text("later work")


@pytest.mark.parametrize(
    "deed",
    [person_commits, person_stages, person_switches, person_edits],
    ids=lambda deed: deed.__name__,
)
def test_later_work_in_a_repository_is_not_gone_over(place: Scene, top: Path, deed: Call) -> None:
    told = history(top)
    snapshot = place.take(repository=top)
    commit(top)
    (top / "src" / "a.py").write_text("of the call")
    git(top, "checkout", "-q", "-b", "of-the-call")
    finish(snapshot)
    deed(top)
    left = history(top), seen(top, leave_out=(".git",))
    with pytest.raises(ConflictError):
        restore("one", place.snapshots)
    assert (history(top), seen(top, leave_out=(".git",))) == left
    (top / "later.txt").unlink(missing_ok=True)
    restore("one", place.snapshots, force=True)
    assert history(top)[2] == told[2]


def test_what_came_into_a_repository_later_stays(place: Scene, top: Path) -> None:
    snapshot = place.take(repository=top)
    (top / "made").mkdir()
    (top / "made" / "by call").write_text("x")
    finish(snapshot)
    (top / "made" / "by person").write_text("x")
    (top / "dist").mkdir()
    git(top, "branch", "of-person")
    restored = restore("one", place.snapshots)
    assert restored.kept == (str(top / "dist"), str(top / "made" / "by person"))
    assert not (top / "made" / "by call").exists()
    assert (top / "made" / "by person").read_text() == "x"
    assert "of-person" in git(top, "branch")


def test_ignored_directories_are_never_touched(place: Scene, top: Path) -> None:
    snapshot = place.take(repository=top)
    (top / ".gitignore").write_text("")
    (top / "build" / "more.o").write_text("x")
    (top / "notes.log").write_text("gone over")
    finish(snapshot)
    restore("one", place.snapshots)
    assert sorted(path.name for path in (top / "build").iterdir()) == ["more.o", "out.o"]
    assert (top / "notes.log").read_text() == "ignored, but not a directory\n"


def test_an_ignored_directory_that_the_call_names_is_held(place: Scene, top: Path) -> None:
    snapshot = place.take(top / "build", repository=top)
    (top / "build" / "out.o").unlink()
    (top / "build").rmdir()
    finish(snapshot)
    restore("one", place.snapshots)
    assert (top / "build" / "out.o").read_bytes() == b"\x7fELF"


def test_a_repository_within_is_left_alone(place: Scene, top: Path) -> None:
    inner = repository(top / "inner")
    snapshot = place.take(repository=top)
    (inner / "run.sh").unlink()
    finish(snapshot)
    assert restore("one", place.snapshots).changes == ()
    assert not (inner / "run.sh").exists()


def test_a_repository_that_is_too_large_makes_no_snapshot(place: Scene, top: Path) -> None:
    before = seen(top)
    with pytest.raises(SnapshotError):
        place.take(repository=top, limits=SnapshotLimits(bytes=30))
    with pytest.raises(SnapshotError):
        place.take(repository=top, limits=SnapshotLimits(files=4))
    assert seen(top) == before
    assert not list(place.snapshots.iterdir())


def test_git_at_work_makes_no_snapshot_and_no_rollback(place: Scene, top: Path) -> None:
    finish(place.take(repository=top))
    (top / ".git" / "index.lock").touch()
    with pytest.raises(SnapshotError):
        place.take(repository=top, name="two")
    with pytest.raises(RollbackError):
        restore("one", place.snapshots)


def test_a_new_repository_without_commits_is_held(place: Scene) -> None:
    top = place.work
    git(top, "init", "-q", "-b", "main")
    (top / "f").write_text("before")
    told = git(top, "status", "--porcelain", "--branch")
    snapshot = place.take(repository=top)
    git(top, "add", "f")
    commit(top)
    finish(snapshot)
    restore("one", place.snapshots)
    assert git(top, "status", "--porcelain", "--branch") == told
    assert (top / "f").read_text() == "before"


def test_a_removed_snapshot_leaves_nothing_in_the_repository(place: Scene, top: Path) -> None:
    forget(place.take(repository=top))
    assert git(top, "for-each-ref", "refs/ironcurtain") == ""
    place.take(repository=top)
    assert prune(place.snapshots, NOW, Retention(count=0)) == ("one",)
    assert git(top, "for-each-ref", "refs/ironcurtain") == ""


def test_the_digest_of_a_file_is_that_of_its_object(place: Scene, top: Path) -> None:
    snapshot = place.take(repository=top)
    entry = snapshot.manifest.before[(*top.parts[1:], "src", "a.py")]
    assert entry.content == sha256(b"blob 6\0a = 2\n").hexdigest()
    assert own(snapshot, "cat-file", "blob", entry.content) == "a = 2\n"


def test_a_commit_while_it_is_taken_makes_no_snapshot(place: Scene, top: Path) -> None:
    branch = top / ".git" / "refs" / "heads" / "meanwhile"

    def commit_meanwhile(event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen" and "update-ref" in str(arguments[1]):
            branch.write_text((top / ".git" / "refs" / "heads" / "main").read_text())

    def work() -> None:
        sys.addaudithook(commit_meanwhile)
        place.take(repository=top)

    assert in_a_child(work) == FAILED
    assert branch.exists()
    assert names_in(place.snapshots) == []
    assert git(top, "for-each-ref", "refs/ironcurtain") == ""


def test_files_within_and_around_a_repository_count_together(place: Scene, top: Path) -> None:
    held = len(place.take(repository=top).manifest.before)
    place.take(repository=top, name="two", limits=SnapshotLimits(files=held))
    with pytest.raises(SnapshotError):
        place.take(repository=top, name="three", limits=SnapshotLimits(files=held - 1))


@pytest.mark.requirement("B-63")
def test_what_a_call_changed_is_told_with_branches_and_head(place: Scene, top: Path) -> None:
    snapshot = place.take(repository=top)
    git(top, "update-ref", "refs/heads/new", "HEAD")
    git(top, "symbolic-ref", "HEAD", "refs/heads/new")
    (top / "run.sh").unlink()
    assert finish(snapshot).changed == (str(top / "run.sh"), "refs/heads/new", "HEAD")
