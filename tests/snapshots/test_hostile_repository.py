"""A repository that would run programs, or lead elsewhere, if it could."""

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ironcurtain_proxy.snapshots.faults import SnapshotError
from ironcurtain_proxy.snapshots.retention import Retention, prune
from ironcurtain_proxy.snapshots.rollback import restore
from ironcurtain_proxy.snapshots.snapshot import finish
from tests.snapshots.snapshot_fixture import NOW, Scene, git, names_in, repository, seen

pytestmark = pytest.mark.requirement("B-62")


@pytest.fixture
def top(place: Scene) -> Path:
    return repository(place.work)


@pytest.fixture
def alarm(place: Scene) -> Path:
    """A program that leaves a mark beside itself when it is run."""
    program = place.root / "alarm"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {place.root}/rung\ncat\n')
    program.chmod(0o755)
    return program


HOOKS = (
    "post-index-change",
    "reference-transaction",
    "pre-commit",
    "post-checkout",
    "post-commit",
    "pre-auto-gc",
    "fsmonitor-watchman",
)


def set_up_everything(top: Path, alarm: Path) -> None:
    """Whatever in a repository can name a program."""
    folder = top / ".git"
    (folder / "hooks").mkdir(exist_ok=True)
    for hook in HOOKS:
        (folder / "hooks" / hook).symlink_to(alarm)
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil text\n")
    (top / ".gitattributes").write_text("* filter=evil diff=evil working-tree-encoding=UTF-16\n")
    with (folder / "config").open("a") as config:
        config.write(
            f"""
[core]
    fsmonitor = {alarm}
    hooksPath = {folder}/hooks
    sshCommand = {alarm}
    gitProxy = {alarm}
    pager = {alarm}
    editor = {alarm}
    askPass = {alarm}
    alternateRefsCommand = {alarm}
    autocrlf = true
    untrackedCache = true
[filter "evil"]
    clean = {alarm}
    smudge = {alarm}
    process = {alarm}
    required = true
[diff "evil"]
    textconv = {alarm}
    command = {alarm}
[diff]
    external = {alarm}
[gpg]
    program = {alarm}
[commit]
    gpgSign = true
[credential]
    helper = {alarm}
[alias]
    write-tree = !{alarm}
    update-ref = !{alarm}
    ls-files = !{alarm}
[remote "origin"]
    url = ext::{alarm}
    promisor = true
    partialclonefilter = blob:none
    uploadpack = {alarm}
[extensions]
    partialClone = origin
[protocol]
    allow = always
[protocol "ext"]
    allow = always
"""
        )


def rung(place: Scene) -> str:
    file = place.root / "rung"
    return file.read_text() if file.exists() else ""


def test_the_alarm_would_ring(place: Scene, top: Path, alarm: Path) -> None:
    set_up_everything(top, alarm)
    for command in (("status",), ("add", "-A"), ("update-ref", "refs/heads/x", "HEAD")):
        with suppress(subprocess.CalledProcessError):
            git(top, *command)
    assert {"alarm", "reference-transaction"} <= {
        Path(line.split()[0]).name for line in rung(place).splitlines()
    }


def test_nothing_of_a_repository_is_run(place: Scene, top: Path, alarm: Path) -> None:
    set_up_everything(top, alarm)
    # Bytes that a filter or a conversion of line ends would change.
    (top / "lines").write_bytes(b"a\r\nb\n\xff")
    before = seen(top, leave_out=(".git",))
    snapshot = place.take(repository=top)
    assert snapshot.manifest.repository is not None, "held by git, not copied"
    (top / "lines").unlink()
    (top / "run.sh").write_text("after")
    head = (top / ".git" / "refs" / "heads" / "main").read_text()
    (top / ".git" / "refs" / "heads" / "new").write_text(head)
    (top / ".git" / "HEAD").write_text("ref: refs/heads/new\n")
    finish(snapshot)
    restored = restore("one", place.snapshots)
    assert rung(place) == ""
    assert (top / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert {"HEAD", "refs/heads/new"} <= {change.what for change in restored.changes}
    after = seen(top, leave_out=(".git",))
    del before[top], after[top]
    assert after == before


def test_nothing_is_fetched_for_a_missing_object(place: Scene, top: Path, alarm: Path) -> None:
    set_up_everything(top, alarm)
    blob = git(top, "rev-parse", ":staged.txt").strip()
    (top / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (place.root / "rung").unlink(missing_ok=True)
    try:
        place.take(repository=top)
    except SnapshotError:
        assert names_in(place.snapshots) == []
    assert rung(place) == ""


def test_a_program_named_git_in_the_repository_is_not_run(
    place: Scene, top: Path, alarm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "git").symlink_to(alarm)
    monkeypatch.chdir(top)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    finish(place.take(repository=top))
    assert rung(place) == ""


def work_tree_elsewhere(top: Path, outside: Path) -> None:
    git(top, "config", "core.worktree", str(outside))


def work_tree_elsewhere_by_its_own_file(top: Path, outside: Path) -> None:
    git(top, "config", "extensions.worktreeConfig", "true")
    (top / ".git" / "config.worktree").write_text(f"[core]\nworktree = {outside}\n")


def included(top: Path, outside: Path) -> None:
    (outside / "more").write_text(f"[core]\nworktree = {outside}\nbare = true\n")
    git(top, "config", "include.path", str(outside / "more"))


@pytest.mark.parametrize(
    "lead",
    [work_tree_elsewhere, work_tree_elsewhere_by_its_own_file, included],
    ids=lambda lead: lead.__name__,
)
def test_a_configured_work_tree_elsewhere_is_of_no_concern(
    place: Scene, top: Path, lead: Callable[[Path, Path], None]
) -> None:
    outside = place.root / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    (outside / ".gitignore").write_text("src/\n")
    (outside / "src").mkdir()
    (outside / "src" / "x").write_text("ignored there, not here")
    lead(top, outside)
    left = seen(outside)
    snapshot = place.take(repository=top)
    assert (*top.parts[1:], "src", "a.py") in snapshot.manifest.before
    assert not any("secret" in path for path in snapshot.manifest.before)
    (top / "run.sh").unlink()
    (outside / "secret").write_text("later")
    changed = seen(outside)
    finish(snapshot)
    restore("one", place.snapshots)
    assert (top / "run.sh").exists()
    assert seen(outside) == changed != left


def linked_refs(top: Path, outside: Path) -> None:
    (top / ".git" / "refs" / "ironcurtain").symlink_to(outside)


def linked_heads(top: Path, outside: Path) -> None:
    (top / ".git" / "refs" / "heads").rename(outside / "heads")
    (top / ".git" / "refs" / "heads").symlink_to(outside / "heads")


def linked_index(top: Path, outside: Path) -> None:
    (top / ".git" / "index").rename(outside / "index")
    (top / ".git" / "index").symlink_to(outside / "index")


def common_directory(top: Path, outside: Path) -> None:
    (top / ".git" / "commondir").write_text(f"{outside}\n")


@pytest.mark.parametrize(
    "lead",
    [linked_refs, linked_heads, linked_index, common_directory],
    ids=lambda lead: lead.__name__,
)
def test_a_repository_that_leads_elsewhere_is_copied_without_git(
    place: Scene, top: Path, lead: Callable[[Path, Path], None]
) -> None:
    outside = place.root / "outside"
    outside.mkdir()
    lead(top, outside)
    before, left = seen(top), seen(outside)
    snapshot = place.take(repository=top)
    assert snapshot.manifest.repository is None
    (top / "run.sh").unlink()
    (top / ".git" / "HEAD").write_text("ref: refs/heads/new\n")
    finish(snapshot)
    restore("one", place.snapshots)
    assert seen(top) == before
    assert seen(outside) == left


def test_without_git_a_repository_is_copied(
    place: Scene, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = seen(top)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        snapshot = place.take(repository=top / "src")
    assert snapshot.manifest.repository is None
    git(top, "commit", "-q", "-a", "-m", "second")
    finish(snapshot)
    restore("one", place.snapshots)
    assert seen(top) == before


@pytest.mark.parametrize("kind", ["linked", "link"])
def test_a_repository_that_lies_elsewhere_makes_no_snapshot(
    place: Scene, top: Path, kind: str
) -> None:
    elsewhere = place.root / "tree"
    if kind == "linked":
        git(top, "worktree", "add", "-q", str(elsewhere), "feature")
    else:
        elsewhere.mkdir()
        (elsewhere / ".git").symlink_to(top / ".git")
    with pytest.raises(SnapshotError):
        place.take(repository=elsewhere)
    assert names_in(place.snapshots) == []


def test_a_bare_repository_is_copied(place: Scene, top: Path) -> None:
    bare = place.root / "bare.git"
    git(top, "clone", "-q", "--bare", "--no-hardlinks", str(top), str(bare))
    before = seen(bare)
    snapshot = place.take(repository=bare)
    git(bare, "update-ref", "-d", "refs/heads/feature")
    finish(snapshot)
    restore("one", place.snapshots)
    assert seen(bare) == before


def test_a_branch_of_a_misleading_name_is_only_a_name(place: Scene, top: Path) -> None:
    git(top, "update-ref", "refs/heads/-d", "HEAD")
    git(top, "update-ref", "refs/heads/ü$(touch-x)", "HEAD")
    snapshot = place.take(repository=top)
    git(top, "update-ref", "-d", "refs/heads/-d")
    finish(snapshot)
    changes = restore("one", place.snapshots).changes
    assert [change.what for change in changes] == ["refs/heads/-d"]


def test_a_name_is_not_taken_away_through_a_link(place: Scene, top: Path) -> None:
    place.take(repository=top)
    outside = place.root / "outside"
    (top / ".git" / "refs" / "ironcurtain").rename(outside)
    (top / ".git" / "refs" / "ironcurtain").symlink_to(outside)
    assert prune(place.snapshots, NOW, Retention(count=0)) == ("one",)
    assert names_in(outside) == ["one"]
