"""Calls that nobody was asked about do not push out what earlier calls of the session may need."""

from pathlib import Path

from ironcurtain_proxy.model.reply import NotHeld, PointId
from ironcurtain_proxy.snapshots.keeper import Limits
from tests.snapshots.timeline.workspace_fixture import Timelined


def test_a_flood_of_bytes_does_not_push_out_what_a_call_has_deleted(tmp_path: Path) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(max_bytes=100_000))
    w("precious").write_text("precious")
    first, _ = w.call(w("precious").unlink)
    point: PointId | NotHeld = first
    for number in range(20):
        point = w.keeper.mark(f"call {number}", "shell", "run", may_drop=False)
        if isinstance(point, NotHeld):
            break
        w("flood").write_bytes(b"%02d" % number * 10_000)
        w.keeper.end_call(point)
    assert isinstance(point, NotHeld)
    assert "earlier calls" in point.reason
    w.back(first, force=True)
    assert w("precious").read_text() == "precious"


def test_who_approves_a_call_lets_the_oldest_points_go(tmp_path: Path) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(max_bytes=100_000))
    for number in range(20):
        w.call(lambda n=number: w("flood").write_bytes(b"%02d" % n * 10_000))  # type: ignore[misc]
    assert w.keeper.history.dropped.points > 0
