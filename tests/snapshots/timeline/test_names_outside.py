"""What a call wrote through a name in the workspace is taken back under its other names, too."""

from pathlib import Path

import pytest

from ironcurtain_proxy.snapshots.applying import Application
from tests.snapshots.timeline.workspace_fixture import Timelined


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    file = tmp_path / "store/shared"
    file.write_text("mine")
    return file


@pytest.fixture
def w(tmp_path: Path, outside: Path) -> Timelined:
    top = tmp_path / "w"
    top.mkdir()
    (top / "a").hardlink_to(outside)
    return Timelined(top, tmp_path / "state")


def append(file: Path) -> None:
    with file.open("a") as stream:
        stream.write(" and evil")


def test_a_write_in_place_is_taken_back_outside_too(w: Timelined, outside: Path) -> None:
    point, changed = w.call(lambda: append(w("a")))
    assert (changed, outside.read_text()) == (["changed a"], "mine and evil")
    assert w.back(point).failed == ()
    assert (w("a").read_text(), outside.read_text()) == ("mine", "mine")
    assert w("a").samefile(outside)


def test_a_file_with_several_names_inside_and_one_outside_stays_one_file(
    w: Timelined, outside: Path
) -> None:
    w("b").hardlink_to(outside)
    w.call(lambda: None)
    point, _ = w.call(lambda: append(w("b")))
    w.back(point)
    assert [one.read_text() for one in (w("a"), w("b"), outside)] == ["mine"] * 3
    assert w("a").samefile(w("b"))


def test_what_a_call_made_read_only_is_taken_back(w: Timelined, outside: Path) -> None:
    def changed() -> None:
        append(w("a"))
        w("a").chmod(0o444)

    mode = outside.stat().st_mode
    point, _ = w.call(changed)
    assert w.back(point).failed == ()
    assert (outside.read_text(), outside.stat().st_mode) == ("mine", mode)


def test_a_file_that_a_call_put_in_the_place_leaves_the_other_name_alone(
    w: Timelined, outside: Path
) -> None:
    def exchanged() -> None:
        w("new").write_text("evil")
        w("new").rename(w("a"))

    point, _ = w.call(exchanged)
    inode = outside.stat().st_ino
    w.back(point)
    assert (w("a").read_text(), outside.read_text()) == ("mine", "mine")
    assert outside.stat().st_ino == inode


def test_another_file_outside_that_came_to_the_name_is_never_written_to(
    w: Timelined, outside: Path
) -> None:
    w("c").write_text("alone")
    w.call(lambda: None)
    point, _ = w.call(w("c").unlink)
    other = outside.with_name("other")
    other.write_text("the user's")
    w("c").hardlink_to(other)
    w.back(point, force=True)
    assert (w("c").read_text(), other.read_text()) == ("alone", "the user's")


def test_without_a_whole_copy_nothing_is_written(w: Timelined, outside: Path) -> None:
    point, _ = w.call(lambda: append(w("a")))
    copies = [one for one in w.store.rglob("*") if one.is_file() and one.read_bytes() == b"mine"]
    assert copies
    for one in copies:
        one.chmod(0o600)
        one.write_text("torn")
    assert [path for path, _ in w.back(point).failed] == ["a"]
    assert outside.read_text() == "mine and evil"


def test_a_name_outside_that_is_gone_makes_it_a_file_like_any_other(
    w: Timelined, outside: Path
) -> None:
    point, _ = w.call(lambda: append(w("a")))
    outside.unlink()
    assert w.back(point).failed == ()
    assert w("a").read_text() == "mine"


def test_a_file_that_is_exchanged_after_the_look_is_not_written_to_by_force(
    w: Timelined, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point, _ = w.call(lambda: append(w("a")))
    other = outside.with_name("other")
    other.write_text("the user's")
    apply = Application.apply

    def exchanged(application: Application) -> None:
        w("a").unlink()
        w("a").hardlink_to(other)
        apply(application)

    monkeypatch.setattr(Application, "apply", exchanged)
    w.back(point, force=True)
    assert (w("a").read_text(), other.read_text()) == ("mine", "the user's")
