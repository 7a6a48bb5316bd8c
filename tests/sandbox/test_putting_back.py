"""What is put back is kept: it may be the user's own."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox import putting_back
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import RemovedFiles

SETTINGS = '{"permissions": {"allow": ["Bash(make)"]}}'


@pytest.fixture
def keeper(tmp_path: Path) -> RemovedFiles:
    return RemovedFiles(tmp_path / "state/put-back")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    with tempfile.TemporaryDirectory(dir=shared) as place:
        yield Path(place)


def settings(place: Path, text: str = SETTINGS) -> Path:
    file = place / ".claude/settings.local.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def looked_at(top: Path, keeper: RemovedFiles) -> ControlLookout:
    """A watch that began before anything was there."""
    lookout = ControlLookout((str(top),), keeper)
    lookout.begin()
    return lookout


def test_what_is_taken_is_kept_for_this_user_alone(tmp_path: Path, keeper: RemovedFiles) -> None:
    file = settings(tmp_path)
    kept = Path(keeper.take(str(file)))
    assert kept.read_text() == SETTINGS
    assert kept.parent == keeper.directory
    assert keeper.directory.stat().st_mode & 0o777 == 0o700
    assert list(file.parent.iterdir()) == []


def test_what_is_made_again_and_again_is_kept_once(tmp_path: Path, keeper: RemovedFiles) -> None:
    kept = {keeper.take(str(settings(tmp_path, text))) for text in ["{}"] * 5 + ["[]"] * 5}
    assert len(kept) == len(list(keeper.directory.iterdir())) == 2


def test_what_the_user_took_out_again_is_kept_again(tmp_path: Path, keeper: RemovedFiles) -> None:
    Path(keeper.take(str(settings(tmp_path)))).unlink()
    assert Path(keeper.take(str(settings(tmp_path)))).read_text() == SETTINGS


def test_beyond_the_most_that_is_kept_nothing_is_lost_and_nothing_steers(
    tmp_path: Path, keeper: RemovedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(putting_back, "_MOST_KEPT", 2)
    texts = [f'{{"n": {number}}}' for number in range(5)]
    kept = [Path(keeper.take(str(settings(tmp_path, text)))) for text in texts]
    assert [file.read_text() for file in kept] == texts
    assert len(list(keeper.directory.iterdir())) == 2


def test_a_file_on_another_file_system_is_kept_too(elsewhere: Path, keeper: RemovedFiles) -> None:
    file = settings(elsewhere)
    kept = Path(keeper.take(str(file)))
    assert (kept.parent, kept.read_text()) == (keeper.directory, SETTINGS)
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["hooks", "hooks/post-commit", "config", "commondir"])
def test_what_cannot_leave_its_file_system_steers_nothing_under_its_new_name(
    elsewhere: Path, keeper: RemovedFiles, name: str
) -> None:
    repository = elsewhere / ".git"
    thing = repository / name
    thing.mkdir(parents=True)
    (thing / "within").write_text("x")
    kept = Path(keeper.take(str(thing)))
    assert (kept / "within").read_text() == "x"
    assert kept.parent == thing.parent


def test_what_cannot_be_kept_is_left_beside(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    file = settings(tmp_path)
    kept = Path(RemovedFiles(tmp_path / "a file/put-back").take(str(file)))
    assert (kept.parent, kept.read_text()) == (file.parent, SETTINGS)


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_whatever_lies_there_is_taken_as_it_is(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, keeper: RemovedFiles, kind: str
) -> None:
    name = tmp_path / ("é" * 100)
    match kind:
        case "link":
            outside = tmp_path_factory.mktemp("outside") / "file"
            outside.write_text("x")
            name.symlink_to(outside)
        case "pipe":
            os.mkfifo(name)
        case _:
            name.mkdir()
    before = name.lstat().st_ino
    kept = Path(keeper.take(str(name)))
    assert kept.lstat().st_ino == before
    assert kept.parent == keeper.directory


def test_what_is_gone_is_nowhere(tmp_path: Path, keeper: RemovedFiles) -> None:
    assert keeper.take(str(tmp_path / "nothing")) == ""


def test_what_is_left_beside_is_not_found_again(tmp_path: Path) -> None:
    """It lies outside of what is a control place as a whole."""
    (tmp_path / "a file").write_text("")
    top = tmp_path / "w"
    settings(top, "mine")
    lookout = looked_at(top, RemovedFiles(tmp_path / "a file/put-back"))
    (top / ".claude/agents.md").write_text("evil")
    assert len(lookout.look()) == 1
    assert lookout.look() == ()
    assert [one.name for one in (top / ".claude").iterdir()] == ["settings.local.json"]
    assert len([*top.glob("put-back-*")]) == 1


def test_a_projects_layer_of_policy_steers_us(tmp_path: Path, keeper: RemovedFiles) -> None:
    lookout = looked_at(tmp_path / "w", keeper)
    directory = tmp_path / "w/.ironcurtain"
    directory.mkdir(parents=True)
    (directory / "policy.yaml").write_text("deny time: '*'")
    assert len(lookout.look()) == 1
    assert not directory.exists()
