"""A hidden name that a person approved is asked about once for each project, in every session."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import RemovedFiles
from ironcurtain_proxy.sandbox.settled_names import SettledNames


@contextmanager
def session(top: Path, state: Path) -> Iterator[ControlLookout]:
    """One session of a proxy over a workspace."""
    names = {str(top): SettledNames.of(state, str(top))}
    lookout = ControlLookout((str(top),), RemovedFiles(state / "put-back"), names=names)
    try:
        lookout.begin()
        yield lookout
    finally:
        lookout.close()


def put(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("x")


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    top, state = tmp_path.resolve() / "w", tmp_path.resolve() / "state"
    for one in (top, state):
        one.mkdir()
    return top, state


def test_an_approved_name_stays_in_later_sessions_and_in_no_other_project(
    places: tuple[Path, Path],
) -> None:
    top, state = places
    with session(top, state) as lookout:
        put(top, ".frobnicate/a")
        assert len(lookout.look()) == 1
        assert not (top / ".frobnicate").exists()
        lookout.allowed[1] = str(top / ".frobnicate")
        lookout.approved.add(str(top / ".frobnicate"))
        put(top, ".frobnicate/a")
        assert lookout.look() == ()
        del lookout.allowed[1]
    (top / ".frobnicate/a").unlink()
    (top / ".frobnicate").rmdir()
    with session(top, state) as lookout:
        put(top, ".Frobnicate/b", "sub/.frobnicate/c")
        assert lookout.look() == ()
        put(top, ".other/a")
        assert len(lookout.look()) == 1
    other = top.with_name("other")
    other.mkdir()
    with session(other, state) as lookout:
        put(other, ".frobnicate/a")
        assert len(lookout.look()) == 1


@pytest.mark.parametrize("name", [".claude/settings.json", ".vscode/tasks.json", ".git", ".envrc"])
def test_what_programs_act_on_is_asked_about_whatever_was_approved(
    places: tuple[Path, Path], name: str
) -> None:
    top, state = places
    SettledNames.of(state, str(top)).add([name.partition("/")[0], name.rpartition("/")[2]])
    with session(top, state) as lookout:
        put(top, name)
        assert len(lookout.look()) == 1


def test_a_name_that_a_rule_allowed_stays_where_it_is_and_settles_no_other(
    places: tuple[Path, Path],
) -> None:
    top, state = places
    with session(top, state) as lookout:
        lookout.allowed[1] = str(top / ".frobnicate")
        put(top, ".frobnicate")
        assert lookout.look() == ()
        del lookout.allowed[1]
        put(top, "sub/.frobnicate")
        assert len(lookout.look()) == 1
        assert (top / ".frobnicate").exists()
    assert SettledNames.of(state, str(top)).read() == frozenset()


def test_a_name_that_only_came_and_went_is_not_approved(places: tuple[Path, Path]) -> None:
    top, state = places
    for _ in range(2):
        with session(top, state) as lookout:
            put(top, ".frobnicate/a")
            assert len(lookout.look()) == 1


def test_a_torn_file_of_names_settles_no_half_of_one(tmp_path: Path) -> None:
    names = SettledNames.of(tmp_path, "/w")
    names.add([".frobnicate", ".other\nname"])
    whole = names.file.read_bytes()
    assert names.read() == {".frobnicate"}
    for length in range(len(whole)):
        names.file.write_bytes(whole[:length])
        assert names.read() == frozenset()
        names.add([".next"])
        assert names.read() >= {".next"}
    assert ".other" not in names.read()
