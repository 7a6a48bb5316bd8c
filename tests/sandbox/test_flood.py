"""Listening to directories ends, whatever happens in them meanwhile."""

import select
from pathlib import Path

from ironcurtain_proxy.inotify import InotifyQueue


def test_an_event_is_told_until_it_is_taken(tmp_path: Path) -> None:
    listening = InotifyQueue()
    listening.add(str(tmp_path))
    listening.add(str(tmp_path / "not there"))
    assert not select.select([listening.descriptor], [], [], 0)[0]
    (tmp_path / "new").mkdir()
    assert select.select([listening.descriptor], [], [], 0)[0]
    assert listening.names() == {"new"}
    assert not select.select([listening.descriptor], [], [], 0)[0]
    listening.close()
