"""The workspace that the tests of the lookout watch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.test_lookout import Watched, made


@pytest.fixture
def w(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A workspace beside a home directory without settings."""
    watched = made(tmp_path.resolve())
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    yield watched
    watched.lookout.close()
