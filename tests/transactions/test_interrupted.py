"""A commit that is killed before any system call, and a recovery that is, lose nothing."""

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.control import Control
from ironcurtain_proxy.transactions.journal import read_begun, read_prepared
from ironcurtain_proxy.transactions.transaction import (
    CommandView,
    SessionViews,
    TakenBack,
    commit,
    discard,
)
from tests.control_places.test_git_index import git, repository
from tests.transactions.bench import Picture, Workbench, recover, recovered, said

DEEDS = """
    echo call > a; rm b; rm -r tree; mkdir new; echo x > new/x; chmod 700 d; echo y > d/y
    rm -r again; mkdir again; echo z > again/z; rm kind; mkdir kind; ln -sf nowhere link
    mv long/way/down up; git add staged
"""
CHANGE = frozenset({"rename", "unlink", "rmdir", "chmod", "fchmod", "mkdir", "write", "utime"})
"""The calls of `posix` that change something; our own renames go by another way."""
OTHERS = 7
"""Two commands: only the first is being committed."""


def furnish(w: Workbench) -> None:
    w.ws.rmdir()
    repository(w.ws)
    for name in ("b", "tree/deep/f", "d/f", "again/f", "kind", "long/way/down/f", "staged", "two"):
        w.write(name)
    (w.ws / "link").symlink_to("a")


def at_each_call(action: Callable[[], object], number: int) -> bool:
    """Do something in another process, which is killed before its nth change. False: it ended."""
    child = os.fork()
    if child == 0:
        left, real = [number], files._rename

        def count() -> None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def renamed(*args: object) -> None:
            count()
            real(*args)  # type: ignore[arg-type]  # as they came

        def called(_frame: FrameType, event: str, function: object) -> None:
            if event == "c_call" and getattr(function, "__name__", "") in CHANGE:
                count()

        files._rename = renamed  # type: ignore[assignment]  # counts, and does it
        sys.setprofile(called)
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def state(w: Workbench) -> tuple[Picture, str]:
    """The workspace but for what git notes for itself, and what git says of it."""
    files_ = {path: what for path, what in w.picture().items() if not path.startswith(b".git/")}
    return files_, git(w.ws, "ls-files", "--stage")


def abandon(w: Workbench) -> None:
    """Let go of the lock, as the kernel does when a process is killed."""
    os.close(w.session._lock)


@pytest.fixture
def furnished(w: Workbench) -> Iterator[Workbench]:
    furnish(w)
    yield w
    for view in list(w.store.glob("*/*/journal")):
        view.unlink()


def view_of(w: Workbench) -> CommandView:
    view = w.view(DEEDS)
    view.prepare(Control())
    # The user's own, after the command: the commit merges the index.
    git(w.ws, "add", "two")
    return view


def test_a_commit_that_is_killed_before_any_change_is_whole_or_taken_back(
    furnished: Workbench,
) -> None:
    w, number, taken = furnished, 0, list[TakenBack]()
    git(w.ws, "add", "two")
    before = state(w)
    after = None
    while after is None:
        view = view_of(w)
        killed = at_each_call(lambda view=view: commit(view.directory), number)  # type: ignore[misc]
        if not killed:
            after = state(w)
        view.close()
        abandon(w)
        found = recovered(w.store)
        assert [left for one in found for left in one.stays] == [], number
        taken += found
        assert not any(w.store.iterdir()), number
        if killed:
            assert state(w) == before, number
        w.session = SessionViews(w.store)
        number += 1
    assert number > len(DEEDS.split(";"))
    assert len(taken) > OTHERS
    assert after != before
    assert state(w) == after, "what came in stays"


def test_a_commit_that_was_taken_back_is_told_until_it_is_recorded_and_then_no_more(
    furnished: Workbench,
) -> None:
    w = furnished
    view = view_of(w)
    assert at_each_call(lambda: commit(view.directory, "its-call"), 12)
    view.close()
    abandon(w)
    told = [recovered(w.store, is_recorded=number == 2) for number in range(4)]
    assert [[(one.call, one.workspace, one.steps > 0) for one in each] for each in told] == [
        *3 * [[("its-call", str(w.ws), True)]],
        [],
    ]
    assert not any(w.store.iterdir())
    w.session = SessionViews(w.store)


def test_a_recovery_that_is_killed_before_any_change_is_gone_on_with(furnished: Workbench) -> None:
    w = furnished
    git(w.ws, "add", "two")
    before = state(w)
    view = view_of(w)
    # In the middle, and killed again each time, at a later change.
    assert at_each_call(lambda: commit(view.directory), 12)
    assert state(w) != before
    view.close()
    abandon(w)
    number = 0
    while at_each_call(lambda: recover(w.store), number):
        number += 1
    assert number > OTHERS
    assert state(w) == before
    assert list(w.store.iterdir()) == []
    w.session = SessionViews(w.store)


def write(record: Path, content: bytes) -> None:
    """Write a record anew: to write over it waits for the disk."""
    record.unlink()
    record.write_bytes(content)


def tear(view: CommandView, name: str, number: int) -> None:
    """Cut a record off somewhere, as a disk may."""
    content = (view.directory / name).read_bytes()
    (view.directory / name).write_bytes(content[: number * 97 % len(content)])


def test_a_record_that_is_cut_off_anywhere_is_recovered_from_the_other_one(
    furnished: Workbench,
) -> None:
    w = furnished
    git(w.ws, "add", "two")
    before, halves = state(w), 0
    for number in range(8, 30):
        view = view_of(w)
        killed = at_each_call(lambda view=view: commit(view.directory), number)  # type: ignore[misc]
        view.close()
        abandon(w)
        if killed and (view.directory / "journal").exists():
            halves += state(w) != before
            tear(view, ("journal", "prepared")[number % 2], number)
        assert recover(w.store) == [], number
        assert not any(w.store.iterdir()), number
        w.session = SessionViews(w.store)
        if not killed:
            break
        assert state(w) == before, number
    assert halves > OTHERS


def test_two_records_that_are_cut_off_anywhere_are_said_and_what_was_replaced_is_kept(
    furnished: Workbench,
) -> None:
    w = furnished
    view = view_of(w)
    number = 8
    while not (view.directory / "journal").exists() or not (view.directory / "upper/b").exists():
        view.close()
        discard(view.directory)
        view = view_of(w)
        assert at_each_call(lambda view=view: commit(view.directory), number)  # type: ignore[misc]
        number += 1
    view.close()
    abandon(w)
    half, records = state(w), [view.directory / name for name in ("journal", "prepared")]
    whole = records[0].read_bytes()
    expected = read_begun(view.directory)[0]
    assert read_prepared(view.directory) == expected
    write(records[1], whole)
    for length in range(len(whole)):
        damaged = bytearray(whole)
        damaged[length] ^= 1
        for content in (whole[:length], bytes(damaged)):
            for one in records:
                write(one, content)
                assert read_begun(view.directory)[0] == expected
                write(one, whole)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        for one in records:
            one.write_bytes(whole[:length])
        (kept,) = recover(w.store)
        assert str(view.directory) in kept.why
        assert state(w) == half
    records[0].write_bytes(whole)
    assert recover(w.store) == []
    w.session = SessionViews(w.store)


@pytest.mark.parametrize("name", ["a", "b", "d/f"])
def test_what_the_user_writes_into_an_open_file_during_the_commit_is_the_user_s(
    furnished: Workbench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    w, real = furnished, files._rename
    view = w.view("echo call > a; rm b; echo call > d/f; echo z > z")
    view.prepare(Control())
    written = [False]
    with (w.ws / name).open("a") as editor:

        def meanwhile(*args: object) -> None:
            real(*args)  # type: ignore[arg-type]  # as they came
            if not (w.ws / name).exists() or (w.ws / name).read_text() == "call\n":
                editor.write("by the user")
                editor.flush()
                written[0] = True

        monkeypatch.setattr(files, "_rename", meanwhile)
        late = commit(view.directory)
    assert written == [True]
    assert said(late) == [name]
    assert (w.ws / name).read_text().endswith("by the user")
    assert (w.ws / "z").read_text() == "z\n"
    view.close()
    discard(view.directory)


@pytest.mark.parametrize("script", ["echo call >> a", "mv a moved", "cp a n; mv n a"])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_what_a_program_goes_on_to_write_into_an_open_file_is_in_the_workspace(
    furnished: Workbench, script: str, is_mapped: bool
) -> None:
    """Such as a server that writes its log, or keeps a database open."""
    w = furnished
    before = (w.ws / "a").read_text()
    view = w.view(f"{script}; echo z > z; rm b")
    with (w.ws / "a").open("r+b", buffering=0) as server, (w.ws / "b").open("a"):
        mapped = mmap.mmap(server.fileno(), 0) if is_mapped else None
        if mapped is not None:
            server.close()
        late = w.bring_in(view)
        if mapped is not None:
            mapped[:1] = b"S"
        else:
            server.write(b"S")
    assert [one.why for one in late] == ["another program has it open to write into it"]
    assert said(late) == ["a"]
    assert (w.ws / "a").read_text() == "S" + before[1:]
    assert (w.ws / "z").exists()
    assert not (w.ws / "b").exists()


@pytest.mark.parametrize("name", ["a", "z", "d/f"])
@pytest.mark.parametrize("is_whole", [False, True])
def test_what_somebody_writes_where_a_change_has_just_come_in_is_said(
    furnished: Workbench, monkeypatch: pytest.MonkeyPatch, name: str, is_whole: bool
) -> None:
    """As file tools do: in its place, or by a file that takes the name."""
    w, real = furnished, files._rename
    view = w.view("echo call > a; echo call > z; echo call > d/f")
    view.prepare(Control())

    def meanwhile(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]  # as they came
        target = w.ws / name
        if target.exists() and target.read_text() == "call\n":
            place = w.base / "tool" if is_whole else target
            place.write_text("by a tool\n")
            place.rename(target)

    monkeypatch.setattr(files, "_rename", meanwhile)
    late = commit(view.directory)
    assert said(late) == [name]
    assert (w.ws / name).read_text() == "by a tool\n"
    view.close()
    discard(view.directory)


def test_a_directory_that_becomes_a_link_during_the_commit_leads_nowhere(
    furnished: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, real = furnished, files._rename
    outside = w.base / "outside"
    outside.mkdir()
    (outside / "f").write_text("old")
    view = w.view("echo call > a; echo call > d/f; echo call > d/new")
    view.prepare(Control())
    before = (w.ws / "a").read_text()

    def meanwhile(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]  # as they came
        if not (w.ws / "d").is_symlink():
            (w.ws / "d").rename(w.base / "away")
            (w.ws / "d").symlink_to(outside)

    monkeypatch.setattr(files, "_rename", meanwhile)
    late = commit(view.directory)
    assert {*said(late)} == {"d/f", "d/new"}
    assert sorted(one.name for one in outside.iterdir()) == ["f"]
    assert (outside / "f").read_text() == "old"
    assert (w.ws / "a").read_text() != before
    view.close()
    discard(view.directory)


def fill(base: Path, what: str) -> list[Path]:
    """Leave no free bytes, or no free files, on the file system of a directory."""
    filled = [base / "fill"]
    if what == "bytes":
        with filled[0].open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1 << 10)):
                pass
    else:
        filled = [base / f"fill-{number}" for number in range(os.statvfs(base).f_favail)]
        for one in filled:
            one.touch()
    return filled


@pytest.mark.parametrize("what", ["bytes", "files"])
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_disk_at_the_commit_leaves_the_workspace_as_it_was(
    tmp_path: Path, kind: str, what: str
) -> None:
    base, image = tmp_path / "small", tmp_path / "image"
    base.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=900", "none", str(base)]
    if kind == "ext4":
        with image.open("wb") as file:
            file.truncate(8 << 20)
        # Nothing of it is kept for root, who runs this.
        subprocess.run(["mkfs.ext4", "-q", "-m0", "-N", "900", str(image)], check=True)
        mount = ["mount", "-o", "loop", str(image), str(base)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root makes a small file system")
    try:
        w = Workbench(base)
        furnish(w)
        view = view_of(w)
        before = state(w)
        filled = fill(base, what)
        with pytest.raises(OSError, match="space"):
            commit(view.directory)
        assert state(w) == before
        for one in filled:
            one.unlink()
        assert commit(view.directory) == []
        view.close()
        discard(view.directory)
        assert git(w.ws, "diff", "--cached", "--name-only").split() == ["staged", "two"]
    finally:
        subprocess.run(["umount", "-l", str(base)], check=True)
