"""What the proxy may not read. Root may read everything, so these run as somebody else."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.model.reply import NotHeld, PointId
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.snapshots.keeper import Limits
from tests.snapshots.timeline.workspace_fixture import Timelined, words

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
            yield Timelined(place / "w", place / "s", Limits(caches=frozenset({"node_modules"})))
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


def transact(w: Timelined, paths: list[str], apply: Callable[[], object]) -> tuple[PointId, str]:
    w.count += 1
    done = w.keeper.transact(
        f"call-{w.count}.", "shell", "run", paths, lambda: (apply(), ())[1], may_drop=False
    )
    assert not isinstance(done, NotHeld), done
    return done[0], ", ".join(words(done[1]))


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("rewind", [False, True])
def test_what_was_closed_to_its_owner_is_changed_by_a_transaction_and_comes_back(
    w: Timelined, is_known: bool, rewind: bool
) -> None:
    """Whether the timeline saw it before it was closed, or not; and closed in two depths."""
    w("d/e").mkdir(parents=True)
    for one in ("d/f", "d/e/f", "d/e/g", "d/e/h", "f", "other"):
        w(one).write_text(one)
    if is_known:
        w.mark()
    for one in ("d/e/g", "d/e", "d", "f"):
        w(one).chmod(0)
    first = w.mark()
    w.keeper.end_call(first)

    def change() -> None:
        for one in ("d", "d/e", "f"):
            w(one).chmod(0o755)
        w("d/f").write_text("other")
        w("d/e/f").unlink()
        w("d/e/g").unlink()
        w("f").write_text("other")
        w("d/e").chmod(0)

    point, changes = transact(w, ["d", "d/f", "d/e", "d/e/f", "d/e/g", "f"], change)
    assert changes == "mode d, deleted d/e/f, deleted d/e/g, changed d/f, changed f"
    w.back(first if rewind else point, rewind=rewind)
    # What the timeline had seen before it was closed comes back as it was then, or stays away.
    was_seen = rewind and is_known
    for one in ("d", "d/e", *(() if was_seen else ("d/e/g", "f"))):
        assert was_seen or w(one).stat().st_mode & 0o777 == 0
        w(one).chmod(0o755)
        assert w(one).is_dir() or w(one).read_text() == one
    for one in ("d/f", "d/e/f", "d/e/h", "other"):
        assert w(one).read_text() == one


def test_what_is_closed_in_a_cache_is_held_before_a_transaction_changes_it(w: Timelined) -> None:
    w("node_modules/x/lib").mkdir(parents=True)
    w("node_modules/x/lib/f").write_text("f")
    w("node_modules/x").chmod(0)

    def change() -> None:
        w("node_modules/x").chmod(0o755)
        w("node_modules/x/lib/f").write_text("other")

    point, changes = transact(w, ["node_modules/x", "node_modules/x/lib/f"], change)
    assert changes == "mode node_modules/x, changed node_modules/x/lib/f"
    w.back(point)
    w("node_modules/x").chmod(0o755)
    assert w("node_modules/x/lib/f").read_text() == "f"


@pytest.mark.parametrize("rewind", [False, True])
@pytest.mark.parametrize("modes", [(0o600,), (0o200, 0o100), (0o755, 0)])
def test_what_lies_in_a_closed_place_stays_there_when_its_mode_is_put_back(
    w: Timelined, modes: tuple[int, ...], *, rewind: bool
) -> None:
    w("d/e").mkdir(parents=True)
    w("d/e/f").write_text("f")
    w("d").chmod(0)
    before = w.picture()

    def change() -> None:
        for mode in modes:
            w("d").chmod(mode)

    point, _ = w.call(change)
    w.back(point, rewind=rewind)
    assert w.picture() == before


@pytest.mark.parametrize("rewind", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_what_was_there_before_a_call_opened_its_place_is_not_taken_away(
    w: Timelined, *, is_first: bool, rewind: bool
) -> None:
    """Only what the call made there is: also where the user closed it after the first look."""
    if not is_first:
        w.call(lambda: None)
    w("d/e").mkdir(parents=True)
    w("d/e/f").write_text("f")
    before = w.picture()
    w("d").chmod(0)
    while w.top.stat().st_ctime_ns < w("d").stat().st_ctime_ns + 100_000_000:
        w.top.chmod(0o755)

    def change() -> None:
        w("d").chmod(0o755)
        w("d/new").touch()

    point, changes = w.call(change)
    assert changes == ["mode d", "created d/new"]
    w.back(point, rewind=rewind)
    assert w("d").stat().st_mode & 0o777 == 0
    w("d").chmod(0o755)
    assert w.picture() == before


def test_a_return_to_a_later_point_leaves_what_a_call_made_and_closed(w: Timelined) -> None:
    def shut() -> None:
        w("d").mkdir()
        w("d/new").write_text("new")
        w("d").chmod(0)

    first, _ = w.call(shut)
    before = w.picture()
    second, _ = w.call(w("other").touch)
    w.back(second, rewind=True)
    assert w.picture() == before
    w.back(first, rewind=True)
    assert w.picture() == {}


@pytest.mark.parametrize("rewind", [False, True])
def test_a_file_with_another_name_in_a_closed_place_comes_back_under_both(
    w: Timelined, *, rewind: bool
) -> None:
    w("d").mkdir()
    w("f").write_text("before")
    w("d/same").hardlink_to(w("f"))
    w("d").chmod(0)
    before = w.picture()
    point, changes = w.call(lambda: w("f").write_text("after"))
    assert changes == ["changed f"]
    w.back(point, rewind=rewind)
    assert w.picture() == before
