"""A process that goes on and on keeps no look from ending."""

from pathlib import Path

from ironcurtain_proxy.sandbox.inotify import Inotify


def test_events_that_come_meanwhile_wait_for_the_next_look(tmp_path: Path) -> None:
    watch = Inotify()
    watch.add(str(tmp_path))
    for name in "abc":
        (tmp_path / name).mkdir()
    seen = []
    for event in watch.events():
        seen.append(event.name)
        (tmp_path / f"{event.name}{len(seen)}").mkdir()
    assert seen == ["a", "b", "c"]
    assert [event.name for event in watch.events()] == ["a1", "b2", "c3"]
    watch.close()
