"""A process that goes on and on keeps no look from ending."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox.inotify import Inotify
from ironcurtain_proxy.snapshots.timeline.events import Events


@pytest.fixture
def flooded(tmp_path: Path) -> Iterator[Path]:
    code = (
        "import os, sys\nos.chdir(sys.argv[1])\nn = 0\nprint(flush=True)\n"
        "while True:\n n += 1; os.mkdir(f'{n}'); os.rmdir(f'{n}')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        yield tmp_path
        one.kill()


def test_events_that_come_meanwhile_wait_for_the_next_look(flooded: Path) -> None:
    watch = Inotify()
    watch.add(str(flooded))
    while not watch.has_events():
        os.sched_yield()
    count = 0
    for _ in watch.events():
        count += 1
        # As slow as whoever judges each of them.
        list(os.scandir("/"))
    assert count
    assert watch.has_events()
    watch.close()


def test_the_timeline_takes_what_is_waiting_and_no_more(flooded: Path) -> None:
    events = Events()
    descriptor = os.open(flooded, os.O_RDONLY)
    events.watch("", descriptor)
    while not events.happened():
        os.sched_yield()
    os.close(descriptor)
    events.close()
