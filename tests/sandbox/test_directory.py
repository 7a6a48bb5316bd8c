"""Where srt has its sockets: a place whose name leaves room for theirs, and nothing else's."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox.directory import make_directory

LONGEST_PATH = 107
"""Bytes of a unix socket's path, without the NUL at its end."""


@pytest.fixture
def base(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The temporary directory of this test, with a short name."""
    tmp_path_factory.getbasetemp()  # made by whoever is first, in whatever is the place then
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Path(short)


def test_it_is_made_in_the_temporary_directory_for_this_user_alone(base: Path) -> None:
    directory = make_directory()
    made = Path(directory.path)
    assert made.parent == base
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    (made / "socket").touch()
    (made / "deeper").mkdir()
    directory.remove()
    assert not made.exists()
    directory.remove()


@pytest.mark.parametrize("name", ["t" * 90, "a b", "a,b", "a:b", "é", "a\nb", 'a"b'])
def test_a_base_in_whose_name_a_socket_would_not_work_is_not_taken(
    base: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    odd = base / name
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    made = make_directory()
    try:
        assert Path(made.path).parent == Path(os.path.realpath("/tmp"))
        assert len(f"{made.path}/claude-http-0123456789abcdef.sock") <= LONGEST_PATH
    finally:
        made.remove()


@pytest.mark.parametrize("length", range(40, 70))
def test_the_longest_socket_fits_whatever_the_length_of_the_base(
    base: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    place = base / ("t" * (length - len(str(base)) - 1))
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    made = make_directory()
    try:
        assert len(f"{made.path}/claude-http-0123456789abcdef.sock") <= LONGEST_PATH
        assert (Path(made.path).parent == place) == (length <= LONGEST_PATH - 34 - 25)
    finally:
        made.remove()


def test_a_link_in_its_place_is_not_followed(base: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    directory = make_directory()
    Path(directory.path).rmdir()
    Path(directory.path).symlink_to(tmp_path)
    directory.remove()
    assert (tmp_path / "precious").exists()


def test_one_that_another_start_takes_for_abandoned_is_made_again(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock nobody can tell it from one that is left over."""
    made: list[str] = []
    locks: list[int] = []
    mkdtemp = tempfile.mkdtemp

    def overtaken(prefix: str, dir: str) -> str:  # noqa: A002  the library's name
        made.append(mkdtemp(prefix=prefix, dir=dir))
        if len(made) == 1:
            Path(made[0]).rmdir()
        elif len(made) == 2:
            locks.append(os.open(made[1], os.O_RDONLY))
            fcntl.flock(locks[0], fcntl.LOCK_EX)
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", overtaken)
    directory = make_directory()
    os.close(locks[0])
    assert directory.path == made[2]
    assert len(made) == 3
    assert [str(left) for left in base.iterdir()] == made[2:]
    directory.remove()
