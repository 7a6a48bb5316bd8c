"""Keys and the proxy's own files: neither copied, nor put back, nor in the way."""

from pathlib import Path

from msgspec.structs import replace

from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.snapshots.keeper import Limits
from tests.snapshots.timeline.workspace_fixture import Timelined


def with_keys(tmp_path: Path, *, from_the_start: bool = True) -> Timelined:
    """A home as a workspace, with a key and a log below it."""
    left_out = frozenset([RealPath.from_text(f"{tmp_path}/w/{one}") for one in (".ssh", "log")])
    limits = Limits(left_out=left_out)
    (tmp_path / "w/.ssh").mkdir(parents=True)
    w = Timelined(tmp_path / "w", tmp_path / "s", limits if from_the_start else Limits())
    w(".ssh/key").write_text("secret before")
    w("log").write_text("before")
    w("a").write_text("before")
    w.limits = limits
    return w


def change_all(w: Timelined) -> None:
    for name in (".ssh/key", "log", "a"):
        w(name).write_text("after")


def contents(w: Timelined) -> list[str]:
    return [w(name).read_text() for name in (".ssh/key", "log", "a")]


def test_they_are_not_copied_and_not_put_back(tmp_path: Path) -> None:
    for rewind in (False, True):
        w = with_keys(tmp_path / str(rewind))
        point, changes = w.call(lambda w=w: change_all(w))  # type: ignore[misc]
        assert changes == ["changed a"]
        w.back(point, rewind=rewind)
        assert contents(w) == ["after", "after", "before"]
        copies = [one.read_bytes() for one in w.store.rglob("*") if one.is_file()]
        assert not [one for one in copies if b"secret" in one]


def test_what_was_copied_under_other_settings_is_not_put_back(tmp_path: Path) -> None:
    w = with_keys(tmp_path, from_the_start=False)
    point, _ = w.call(lambda: change_all(w))
    w.call(w(".ssh/key").unlink)
    w(".ssh/key").write_text("mine")
    w.reopen()
    w.back(point, rewind=True, force=True)
    assert contents(w) == ["mine", "after", "before"]


def test_a_path_beside_one_of_them_with_the_same_beginning_is_held(tmp_path: Path) -> None:
    w = with_keys(tmp_path)
    w(".sshrc").write_text("before")
    point, _ = w.call(lambda: w(".sshrc").write_text("after"))
    w.back(point)
    assert w(".sshrc").read_text() == "before"


def test_a_directory_that_came_around_one_of_them_stays(tmp_path: Path) -> None:
    inner = RealPath.from_text(f"{tmp_path}/w/new/keys")
    w = Timelined(tmp_path / "w", tmp_path / "s", replace(Limits(), left_out=frozenset([inner])))

    def make() -> None:
        w("new/keys").mkdir(parents=True)
        w("new/keys/key").write_text("secret")
        w("new/other").write_text("x")

    point, _ = w.call(make)
    w.back(point)
    assert (w("new/keys/key").read_text(), w("new/other").exists()) == ("secret", False)
