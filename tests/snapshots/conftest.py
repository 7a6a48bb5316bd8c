"""A scene for each test."""

from pathlib import Path

import pytest

from ironcurtain_proxy.snapshots.snapshot import Snapshot, finish
from tests.snapshots.snapshot_fixture import Scene, scene


@pytest.fixture
def place(tmp_path: Path) -> Scene:
    return scene(tmp_path)


@pytest.fixture
def called(place: Scene) -> Snapshot:
    """A call has changed one file, removed one, and made one."""
    held = place.work / "held"
    held.mkdir()
    (held / "changed").write_text("before")
    (held / "removed").write_text("before")
    snapshot = place.take(held)
    (held / "changed").write_text("by the call")
    (held / "removed").unlink()
    (held / "made").write_text("by the call")
    finish(snapshot)
    return snapshot
