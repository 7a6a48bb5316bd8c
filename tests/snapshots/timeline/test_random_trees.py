"""Whatever is done to a workspace, what is taken back is as it was, byte for byte."""

from pathlib import Path

import pytest

from tests.snapshots.timeline.workspace_fixture import Picture, Timelined, Vandal

SEEDS = range(15)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rewind_leads_to_the_very_tree_that_the_point_was_made_of(
    tmp_path: Path, seed: int
) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s")
    vandal = Vandal(w.top, seed)
    vandal.run(60)
    pictures: list[tuple[str, Picture]] = []
    for _ in range(5):
        point = w.mark()
        pictures.append((point, w.picture()))
        vandal.run(12)
        w.keeper.end_call(point)
    last = w.picture()
    chosen = vandal.random.choice(pictures)
    done = w.back(chosen[0], rewind=True)
    assert w.picture() == chosen[1]
    if done.id is not None:
        # The rollback itself is taken back.
        own = max(point.number for point in _points(w))
        w.request(own)
        assert w.picture() == last


def _points(w: Timelined) -> list:  # type: ignore[type-arg]
    history = w.keeper.log.read()
    assert history is not None
    return history.points()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_call_taken_back_alone_leaves_what_was_before_it(
    tmp_path: Path, seed: int
) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s")
    vandal = Vandal(w.top, 1000 + seed)
    vandal.run(50)
    w.call(lambda: vandal.run(10))
    before = w.picture()
    point, _ = w.call(lambda: vandal.run(15))
    w.back(point)
    assert w.picture() == before


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_events_tell_is_what_looking_at_everything_finds(
    tmp_path: Path, seed: int
) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s")
    vandal = Vandal(w.top, 2000 + seed)
    vandal.run(40)
    for _ in range(6):
        w.call(lambda: vandal.run(8))
        assert [d for d in w.keeper.scanner.look(everything=True) if d.counts] == []
