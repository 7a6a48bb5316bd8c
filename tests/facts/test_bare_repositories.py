"""A directory laid out like a repository is not worked in."""

from pathlib import Path

import pytest

from ironcurtain_proxy.facts.pushes import BARE, repository_root
from ironcurtain_proxy.model.values import RealPath


def lay_out(directory: Path) -> None:
    (directory / "objects").mkdir(parents=True)
    (directory / "refs").mkdir()
    (directory / "HEAD").write_text("ref: refs/heads/main\n")
    (directory / "config").write_text("[core]\n\tbare = true\n\tfsmonitor = /tmp/evil\n")


def real(path: Path) -> RealPath:
    return RealPath.from_text(str(path.resolve()))


@pytest.mark.parametrize("below", ["", "sub", "sub/deeper"])
def test_a_bare_layout_that_anyone_could_have_written_is_refused(
    tmp_path: Path, below: str
) -> None:
    lay_out(tmp_path / "evil")
    (tmp_path / "evil" / below).mkdir(parents=True, exist_ok=True)
    assert repository_root(real(tmp_path / "evil" / below)) == BARE


def test_an_ordinary_repository_is_found_from_below(tmp_path: Path) -> None:
    lay_out(tmp_path / "repo" / ".git")
    (tmp_path / "repo" / "src").mkdir()
    assert repository_root(real(tmp_path / "repo" / "src")) == real(tmp_path / "repo")
    assert repository_root(real(tmp_path / "repo" / ".git")) == real(tmp_path / "repo")


def test_a_bare_layout_inside_an_ordinary_repository_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path / "repo" / ".git")
    lay_out(tmp_path / "repo" / "evil")
    assert repository_root(real(tmp_path / "repo" / "evil")) == BARE


def test_a_broken_git_directory_beside_a_layout_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path / "x")
    (tmp_path / "x/.git/objects").mkdir(parents=True)
    assert repository_root(real(tmp_path / "x")) == BARE


def test_a_layout_through_commondir_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    (tmp_path / "e/HEAD").touch()
    (tmp_path / "e/commondir").touch()
    assert repository_root(real(tmp_path / "e")) == BARE


@pytest.mark.parametrize("name", ["objects", "refs", "commondir"])
def test_a_head_with_any_part_of_a_repository_beside_it_is_refused(
    tmp_path: Path, name: str
) -> None:
    """Git wants more, a library of it may want less, and the rest is written in a moment."""
    (tmp_path / "e").mkdir()
    (tmp_path / "e/HEAD").touch()
    (tmp_path / "e" / name).mkdir()
    assert repository_root(real(tmp_path / "e")) == BARE


def test_a_repository_directly_below_the_root_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.lexists", lambda place: place == "/srv/.git")
    assert repository_root(RealPath.from_text("/srv/a/b")) == RealPath.from_text("/srv")


@pytest.mark.parametrize("names", [["HEAD"], ["objects", "refs", "commondir"], ["config"]])
def test_a_directory_with_a_few_names_of_a_repository_is_worked_in(
    tmp_path: Path, names: list[str]
) -> None:
    place = tmp_path / "plain"
    place.mkdir()
    for name in names:
        (place / name).touch()
    assert repository_root(real(place)) == real(place)
