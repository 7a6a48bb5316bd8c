"""What the proxy may not read. Root may read everything, so these run as somebody else."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.model.values import RealPath
from tests.snapshots.timeline.workspace_fixture import Timelined

NOBODY = 65534


@pytest.fixture
def w() -> Iterator[Timelined]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as made:
        place = Path(made).resolve()
        was_root = os.geteuid() == 0
        if was_root:
            place.chmod(0o777)
            os.seteuid(NOBODY)
        try:
            yield Timelined(place / "w", place / "s")
        finally:
            if was_root:
                os.seteuid(0)
            subprocess.run(["chmod", "-R", "u+rwx", str(place)], check=True)


def held(w: Timelined, name: str) -> bool:
    return not w.keeper.unheld(RealPath.from_text(str(w(name))))


def test_a_file_that_cannot_be_read_is_not_held_until_it_can(w: Timelined) -> None:
    w("shut").write_text("x")
    w("shut").chmod(0)
    assert not held(w, "shut")
    assert w.keeper.unheld(w.workspace)
    w.mark()
    w("shut").chmod(0o600)
    assert held(w, "shut")


def test_a_file_that_a_call_made_unreadable_comes_back(w: Timelined) -> None:
    w("a").write_text("before")
    before = w.picture()

    def shut() -> None:
        w("a").write_text("after!")
        w("a").chmod(0)

    point, changes = w.call(shut)
    assert changes == ["changed a"]
    w.back(point)
    assert w.picture() == before


@pytest.mark.parametrize("rewind", [False, True])
def test_a_directory_that_a_call_shut_comes_back_with_what_is_in_it(
    w: Timelined, rewind: bool
) -> None:
    w("d/e").mkdir(parents=True)
    w("d/e/f").write_text("before")
    before = w.picture()

    def shut() -> None:
        w("d/e/f").write_text("after")
        w("d/e/new").touch()
        w("d").chmod(0)

    point, changes = w.call(shut)
    assert "mode d" in changes
    assert not held(w, "d/e/f")
    w.back(point, rewind=rewind)
    assert w.picture() == before


def test_a_directory_that_may_not_be_written_is_written_and_shut_again(w: Timelined) -> None:
    w("d").mkdir()
    w("d/f").write_text("before")
    w("d").chmod(0o500)
    before = w.picture()

    def change() -> None:
        w("d").chmod(0o700)
        w("d/f").unlink()
        w("d").chmod(0o500)

    point, changes = w.call(change)
    assert changes == ["deleted d/f"]
    w.back(point)
    assert w.picture() == before
