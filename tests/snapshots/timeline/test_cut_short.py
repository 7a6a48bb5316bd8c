"""Rollbacks that are killed, disks that fill up, and directories that are swapped meanwhile."""

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.model.reply import NotHeld
from tests.snapshots.timeline.workspace_fixture import Timelined, Vandal

ROOT = Path(__file__).parents[3]


@pytest.fixture
def w(tmp_path: Path) -> Timelined:
    return Timelined(tmp_path / "w", tmp_path / "s")


@pytest.mark.parametrize("seed", range(6))
def test_a_rollback_that_was_killed_is_completed_by_the_next(w: Timelined, seed: int) -> None:
    Vandal(w.top, seed).run(30)
    for number in range(300):
        w(f"file-{number}").write_text("before")
    before = w.picture()

    def change() -> None:
        for number in range(300):
            w(f"file-{number}").write_text("after")
        Vandal(w.top, seed + 1).run(20)

    point, _ = w.call(change)
    chance = random.Random(seed)  # noqa: S311  repeatable chance
    with subprocess.Popen(
        [sys.executable, "-m", "tests.snapshots.timeline.dying_rollback", w.store, w.top],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        timer = threading.Timer(0.05 + chance.random() / 10, killed.kill)
        timer.start()
        killed.wait()
        timer.join()
    w.back(point, rewind=True)
    assert w.picture() == before
    assert not list(w.top.rglob(".ironcurtain*"))
    _, changes = w.call(lambda: w("later").touch())
    assert changes == ["created later"]


def test_a_directory_that_is_swapped_for_a_link_all_the_time_shows_nothing_of_outside(
    w: Timelined, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "sub" / "secret").write_text("of another place")
    w("d/sub").mkdir(parents=True)
    w("d/sub/secret").write_text("ours")
    w("away").mkdir()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            w("d").rename(w("away/d"))
            w("d").symlink_to(outside)
            w("d").unlink()
            w("away/d").rename(w("d"))

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(60):
            w.keeper.scanner.events.missed = True
            w.keeper.end_call(w.mark())
    finally:
        stop.set()
        swapping.join()
    held = [one.read_bytes() for one in (w.store / "copies").rglob("*") if one.is_file()]
    assert b"of another place" not in held
    w.call(lambda: None)
    assert w.keeper.scanner.known.get("d/sub/secret") is not None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root mounts a small disk")
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("nothing may be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_full_refuses_points_and_keeps_those_it_has(
    tmp_path: Path, small_disk: Path
) -> None:
    w = Timelined(tmp_path / "w", small_disk / "s")
    w("a").write_bytes(os.urandom(100_000))
    before = w.picture()
    point, _ = w.call(lambda: w("a").write_bytes(b"changed"))
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (2 << 20))
    w("b").write_bytes(os.urandom(50_000))
    refused = w.keeper.mark("next", "s", "t")
    assert isinstance(refused, NotHeld)
    assert "space" in refused.reason
    filler.unlink()
    second, changes = w.call(w("b").unlink)
    assert changes == ["deleted b"]
    w.back(second)
    assert w("b").stat().st_size == 50_000
    w.back(point, rewind=True)
    assert w.picture() == before


def test_changes_that_no_log_could_take_are_taken_back_by_another_process(
    tmp_path: Path, small_disk: Path
) -> None:
    w = Timelined(tmp_path / "w", small_disk / "s")
    for number in range(300):
        w(f"file-{number}").write_text("kept")
    before = w.picture()
    point = w.mark()
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(b"x" * (2 << 20))
    # The end of the call is short enough for the rest of the log's last block.
    for number in range(300):
        w(f"file-{number}").unlink()
    w.keeper.end_call(point)
    assert isinstance(w.keeper.mark("next", "s", "t"), NotHeld)
    (small_disk / "filler").unlink()
    w.back(point)
    assert w.picture() == before
