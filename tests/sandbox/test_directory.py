"""Where srt has its sockets: a place whose name leaves room for theirs, and nothing else's."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox.directory import make_directory, remove_directory

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
    made = Path(make_directory())
    assert made.parent == base
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    (made / "socket").touch()
    (made / "deeper").mkdir()
    remove_directory(str(made))
    assert not made.exists()
    remove_directory(str(made))


@pytest.mark.parametrize("name", ["t" * 90, "a b", "a,b", "a:b", "é", "a\nb", 'a"b'])
def test_a_base_in_whose_name_a_socket_would_not_work_is_not_taken(
    base: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    odd = base / name
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    made = make_directory()
    try:
        assert Path(made).parent == Path(os.path.realpath("/tmp"))
        assert len(f"{made}/claude-http-0123456789abcdef.sock") <= LONGEST_PATH
    finally:
        remove_directory(made)


@pytest.mark.parametrize("length", range(50, 80))
def test_the_longest_socket_fits_whatever_the_length_of_the_base(
    base: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    place = base / ("t" * (length - len(str(base)) - 1))
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    made = make_directory()
    try:
        assert len(f"{made}/claude-http-0123456789abcdef.sock") <= LONGEST_PATH
        assert (Path(made).parent == place) == (length <= LONGEST_PATH - 34 - 13)
    finally:
        remove_directory(made)


def test_a_link_in_its_place_is_not_followed(base: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    link = base / "link"
    link.symlink_to(tmp_path)
    remove_directory(str(link))
    assert (tmp_path / "precious").exists()
