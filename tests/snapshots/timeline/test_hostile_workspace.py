"""A call tries to make the timeline lose something, or write where it must not."""

import inspect
import mmap
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.model.reply import NotHeld
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.snapshots.keeper import Limits
from ironcurtain_proxy.snapshots.planning import ConflictError, RollbackError
from tests.snapshots.timeline.workspace_fixture import Timelined


def remove(place: Path) -> None:
    subprocess.run(["rm", "-rf", str(place)], check=True)


def chain(top: Path, name: str, length: int) -> int:
    """Make directories, each in the one before. Returns the last one, opened.

    A shell would look up the whole path, from the root, at each of them.
    """
    place = os.open(top, os.O_DIRECTORY)
    for _ in range(length):
        os.mkdir(name, dir_fd=place)
        inner = os.open(name, os.O_DIRECTORY, dir_fd=place)
        os.close(place)
        place = inner
    return place


@pytest.fixture
def w(tmp_path: Path) -> Timelined:
    made = Timelined(tmp_path / "w", tmp_path / "s", Limits(caches=frozenset({"cache"})))
    made("src").mkdir()
    made("src/a").write_text("precious")
    made(".env").write_text("SECRET=1")
    return made


def test_a_link_in_the_place_of_a_directory_leads_no_rollback_outside(
    w: Timelined, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("not ours")
    before = w.picture()

    def swap() -> None:
        shutil.rmtree(w("src"))
        w("src").symlink_to(outside)

    point, changes = w.call(swap)
    assert changes == ["changed src", "deleted src/a"]
    w.back(point)
    assert (outside / "a").read_text() == "not ours"
    assert w.picture() == before


def test_what_a_link_leads_to_is_never_copied(w: Timelined, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of another place")
    w.call(lambda: w("src/link").symlink_to(tmp_path / "key"))
    held = [one.read_bytes() for one in w.store.rglob("*") if one.is_file()]
    assert not [one for one in held if b"of another place" in one]


def test_a_name_outside_that_came_since_the_point_is_not_written_through(
    w: Timelined, tmp_path: Path
) -> None:
    w("shared").write_text("before")

    def shared() -> None:
        (tmp_path / "outside").hardlink_to(w("shared"))
        w("shared").write_text("by the call")

    point, changes = w.call(shared)
    assert changes == ["changed shared"]
    w.back(point)
    assert w("shared").read_text() == "before"
    assert (tmp_path / "outside").read_text() == "by the call"


def test_a_write_under_another_name_is_found_under_both(w: Timelined) -> None:
    w("other").mkdir()
    before = w.picture()

    def write() -> None:
        w("other/b").hardlink_to(w("src/a"))
        w("other/b").write_text("changed!")

    point, changes = w.call(write)
    assert changes == ["created other/b", "changed src/a"]
    w.back(point)
    assert w.picture() == before


def test_a_time_that_is_set_back_hides_no_change(w: Timelined) -> None:
    def forge() -> None:
        times = w("src/a").stat()
        w("src/a").write_text("PRECIOUS")
        os.utime(w("src/a"), ns=(times.st_atime_ns, times.st_mtime_ns))

    point, changes = w.call(forge)
    assert changes == ["changed src/a"]
    w.back(point)
    assert w("src/a").read_text() == "precious"


def test_a_write_through_a_mapping_is_taken_back(w: Timelined) -> None:
    with w("src/a").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 8)
    point, _ = w.call(lambda: w("src/a").touch())
    mapped[:8] = b"scribble"
    w.back(point, rewind=True)
    assert w("src/a").read_text() == "precious"
    mapped.close()


def test_pipes_and_sockets_are_not_waited_for(w: Timelined) -> None:
    before = w.picture()

    def make() -> None:
        os.mkfifo(w("pipe"))
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(w("socket")))

    point, changes = w.call(make)
    assert changes == ["created pipe", "created socket"]
    w.back(point)
    assert w.picture() == before


def test_a_pipe_comes_back(w: Timelined) -> None:
    os.mkfifo(w("pipe"), 0o640)
    before = w.picture()
    point, _ = w.call(w("pipe").unlink)
    w.back(point)
    assert w.picture() == before


def test_attributes_of_a_directory_come_back(w: Timelined) -> None:
    for name in ("changed", "deleted"):
        w(name).mkdir()
        os.setxattr(w(name), "user.kept", b"before")

    def strip() -> None:
        os.removexattr(w("changed"), "user.kept")
        os.setxattr(w("changed"), "user.new", b"x")
        w("deleted").rmdir()

    point, changes = w.call(strip)
    assert changes == ["changed changed", "deleted deleted"]
    w.back(point)
    for name in ("changed", "deleted"):
        assert {one: os.getxattr(w(name), one) for one in os.listxattr(w(name))} == {
            "user.kept": b"before"
        }


def test_a_sparse_file_of_four_gibibytes_is_held_by_what_is_in_it(w: Timelined) -> None:
    with w("sparse").open("wb") as file:
        file.truncate(4 << 30)
        file.seek(3 << 30)
        file.write(b"in the middle")
    point, _ = w.call(w("sparse").unlink)
    w.back(point)
    found = w("sparse").stat()
    assert found.st_size == 4 << 30
    assert found.st_blocks * 512 < 1 << 20
    with w("sparse").open("rb") as file:
        file.seek(3 << 30)
        assert file.read(13) == b"in the middle"


def test_what_is_too_large_is_not_held_and_that_is_said(tmp_path: Path) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(max_bytes=1 << 20))
    w("large").write_bytes(b"x" * (400 << 10))
    w("small").write_bytes(b"x")
    assert w.keeper.unheld(RealPath.from_text(str(w("large"))))
    assert not w.keeper.unheld(RealPath.from_text(str(w("small"))))
    assert w.keeper.unheld(w.workspace)
    point, changes = w.call(w("large").unlink)
    assert changes == ["deleted large"]
    assert [step.path for step in w.back(point, dry_run=True).plan.lost] == ["large"]


def test_a_cache_is_not_held_and_what_is_around_it_is(w: Timelined) -> None:
    w("src/cache").mkdir()
    w("src/cache/x").write_text("made again")
    assert w.keeper.unheld(RealPath.from_text(str(w("src/cache"))))
    assert w.keeper.unheld(RealPath.from_text(str(w("src/cache/x"))))
    assert not w.keeper.unheld(RealPath.from_text(str(w("src"))))
    assert not w.keeper.unheld(RealPath.from_text(str(w("nothing"))))
    assert w.keeper.unheld(RealPath.from_text("/etc/passwd"))


def test_a_tree_that_was_moved_into_a_cache_comes_back(w: Timelined) -> None:
    before = w.picture()
    w("cache").mkdir()
    before = w.picture()
    point, changes = w.call(lambda: w("src").rename(w("cache/src")))
    assert changes == ["deleted src", "deleted src/a"]
    w.back(point)
    shutil.rmtree(w("cache/src"))
    assert w.picture() == before


@pytest.fixture
def short_stack() -> Iterator[None]:
    """What calls itself for each directory fails in a tree of fewer than a thousand of them."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("short_stack")
def test_a_tree_deeper_than_a_path_or_the_stack_comes_back(w: Timelined) -> None:
    bottom = chain(w.top, "deep-directory", 400)
    os.close(os.open("bottom", os.O_CREAT, dir_fd=bottom))
    os.close(bottom)
    point, changes = w.call(lambda: remove(w("deep-directory")))
    assert len(changes) == 401
    w.back(point)
    found = [len(path) for path, _ in w.keeper.scanner.known.all()]
    w.mark()
    assert max(len(path) for path, _ in w.keeper.scanner.known.all()) > max(found)
    assert w.keeper.scanner.known.get("/".join(["deep-directory"] * 400) + "/bottom") is not None


def test_a_chain_of_directories_counts_by_the_length_of_its_paths(tmp_path: Path) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(max_files=1000))
    for number in range(900):
        w(f"{number}").touch()

    def empty() -> None:
        for number in range(900):
            w(f"{number}").unlink()

    point, _ = w.call(empty)
    _, changes = w.call(lambda: os.close(chain(w.top, "d", 900)))
    assert changes == ["the workspace has more than 1,000 files and directories"]
    remove(w("d"))
    w.back(point)
    assert len([*w.top.iterdir()]) == 900


def test_more_files_than_may_be_held_stop_the_points_and_are_taken_back_by_force(
    tmp_path: Path,
) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(max_files=50))
    w("kept").write_text("kept")
    before = w.picture()

    def flood() -> None:
        w("kept").unlink()
        for number in range(100):
            w(f"{number}").touch()

    point, _ = w.call(flood)
    refused = w.keeper.mark("next", "s", "t")
    assert isinstance(refused, NotHeld)
    assert "more than 50" in refused.reason
    with pytest.raises(RollbackError, match="--force"):
        w.back(point, rewind=True)
    w.back(point, rewind=True, force=True)
    assert w.picture() == before
    assert not isinstance(w.keeper.mark("next", "s", "t"), NotHeld)


def test_what_a_call_left_running_writes_later_is_told_from_the_next_call(w: Timelined) -> None:
    point, _ = w.call(lambda: w("src/a").write_text("by the call"))
    w(".env").write_text("by what it left")
    _, changes = w.call(lambda: None)
    assert changes == []
    w("src/a").write_text("later still")
    with pytest.raises(ConflictError, match="came later"):
        w.back(point)
    w.back(point, rewind=True)
    assert (w("src/a").read_text(), w(".env").read_text()) == ("precious", "SECRET=1")


def test_a_workspace_that_was_replaced_is_not_held(w: Timelined, tmp_path: Path) -> None:
    w.mark()
    w.top.rename(tmp_path / "moved")
    w.top.mkdir()
    refused = w.keeper.mark("next", "s", "t")
    assert isinstance(refused, NotHeld)
    assert "moved or replaced" in refused.reason
