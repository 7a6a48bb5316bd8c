"""A directory is left alone because of what it is, not because of its name alone."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.config.settings import TimelineSettings
from ironcurtain_proxy.snapshots.keeper import Limits
from tests.snapshots.timeline.workspace_fixture import Timelined
from tests.tables import table


@pytest.fixture
def w(tmp_path: Path) -> Timelined:
    return Timelined(tmp_path / "w", tmp_path / "s", Limits(caches=TimelineSettings().caches))


def put(w: Timelined, name: str) -> Path:
    w(name).parent.mkdir(parents=True, exist_ok=True)
    w(name).write_text(f"precious {name}")
    return w(name)


@pytest.mark.parametrize(
    "name", table("snapshots/timeline/caches.what_only_has_the_name_of_a_cache", list[str])
)
def test_what_only_has_the_name_of_a_cache_comes_back(w: Timelined, name: str) -> None:
    put(w, name)
    before = w.picture()
    point, changes = w.call(lambda: shutil.rmtree(w(name).parent))
    assert f"deleted {name}" in changes
    w.back(point)
    assert w.picture() == before


@pytest.mark.parametrize(
    "signs",
    [
        {"Cargo.toml": "target"},
        {"target/CACHEDIR.TAG": "target"},
        {"venv/pyvenv.cfg": "venv"},
        {"package.json": "node_modules"},
    ],
)
def test_what_a_tool_has_made_is_left_alone(w: Timelined, signs: dict[str, str]) -> None:
    made = []
    for sign, cache in signs.items():
        put(w, f"deep/{sign}")
        made.append(put(w, f"deep/{cache}/made"))
    _, changes = w.call(made[-1].unlink)
    assert changes == []


def test_what_is_held_stays_held_when_a_call_makes_it_look_like_a_cache(w: Timelined) -> None:
    put(w, "target/source.c")
    before = w.picture()
    point, _ = w.call(lambda: put(w, "Cargo.toml"))
    w.call(lambda: shutil.rmtree(w("target")))
    w.back(point, rewind=True)
    assert w.picture() == before


def test_what_was_held_is_held_again_when_it_comes_back_looking_like_a_cache(w: Timelined) -> None:
    put(w, "target/source.c")
    before = w.picture()
    point, _ = w.call(lambda: w("target").rename(w("aside")))
    w.call(lambda: (put(w, "Cargo.toml"), w("aside").rename(w("target"))))
    _, changes = w.call(lambda: w("target/source.c").write_text("x"))
    assert changes == ["changed target/source.c"]
    w.back(point, rewind=True)
    assert w.picture() == before


def test_a_directory_that_a_rollback_brings_back_is_held_although_it_looks_like_a_cache(
    w: Timelined,
) -> None:
    put(w, "target/source.c")
    before = w.picture()
    first, _ = w.call(lambda: put(w, "target/CACHEDIR.TAG"))
    second, _ = w.call(lambda: shutil.rmtree(w("target")))
    w.back(second)
    _, changes = w.call(w("target/source.c").unlink)
    assert changes == ["deleted target/source.c"]
    w.back(first, rewind=True)
    assert w.picture() == before


def test_a_branch_that_is_named_like_a_cache_comes_back(w: Timelined) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(w.top), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    git("branch", "target/one")
    at = git("rev-parse", "target/one")
    point, _ = w.call(lambda: git("branch", "-D", "target/one"))
    w.back(point)
    assert git("rev-parse", "target/one") == at
