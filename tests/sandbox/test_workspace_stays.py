"""The directory in which servers work is the user's: it stays, whatever they make of it.

A process of a server can make the look at it fail, or leave very much there that steers.
"""

import errno
import os
from collections.abc import Iterator

import pytest

from ironcurtain_proxy.sandbox import lookout
from tests.sandbox.test_lookout import Watched


def test_a_link_that_is_replaced_while_it_is_read_takes_nothing_away(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.put("mine.txt")
    w.begin()
    (w.top / "link").symlink_to("/elsewhere")

    def replaced(path: str) -> str:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

    monkeypatch.setattr(os, "readlink", replaced)
    assert w.look() == []
    assert (w.top / "mine.txt").exists()


def test_a_workspace_that_cannot_be_looked_into_stays_and_ends_containment(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.put("mine.txt")
    w.begin()
    w.put("new.txt")
    look_into = os.scandir

    def broken(path: str) -> Iterator[os.DirEntry[str]]:
        if path == str(w.top):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return look_into(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", broken)
        said = w.look()
    assert any("could not be taken away" in one for one in said)
    assert w.lookout.unseen
    assert (w.top / "mine.txt").exists()


def test_of_a_workspace_with_many_control_places_each_is_taken_away_alone(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "_MOST_SINGLE", 1)
    w.put("mine.txt")
    w.begin()
    for name in (".mcp.json", ".envrc", ".pre-commit-config.yaml"):
        w.put(name, "x: y")
    w.look()
    assert [one.name for one in w.top.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("has_more", [True, False])
def test_a_directory_with_many_of_them_is_taken_away_only_if_it_holds_nothing_else(
    w: Watched, *, has_more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "_MOST_SINGLE", 1)
    (w.top / "src").mkdir()
    if has_more:
        w.put("src/mine.py")
    w.begin()
    for name in (".mcp.json", ".envrc", ".pre-commit-config.yaml"):
        w.put(f"src/{name}", "x: y")
    said = w.look()
    assert len(said) == (3 if has_more else 1)
    assert [one.name for one in w.top.rglob("*.*")] == ["mine.py"] * has_more
