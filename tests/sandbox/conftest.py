"""The workspace that the tests of the lookout watch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.test_lookout import Watched, made


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without settings: those of who runs the tests lead anywhere."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture
def w(tmp_path: Path, empty_home: Path) -> Iterator[Watched]:
    """A workspace beside a home directory without settings."""
    watched = made(tmp_path.resolve())
    yield watched
    watched.lookout.close()
