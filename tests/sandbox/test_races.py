"""While a call runs, what has a name that steers git is looked at without a pause."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import pytest

from ironcurtain_proxy.control_places.rules import may_steer
from ironcurtain_proxy.inotify import InotifyQueue
from ironcurtain_proxy.sandbox import watchman
from ironcurtain_proxy.sandbox.watchman import Watchman
from tests.program import until
from tests.sandbox.test_lookout import EVIL, Watched, repository
from tests.tables import table

_NEVER = 3600.0


@pytest.mark.parametrize(
    ("name", "is_written", "may"),
    table("sandbox/races.names_that_nothing_acts_on_wait", list[tuple[str, bool, bool]]),
)
def test_names_that_nothing_acts_on_wait_for_the_next_look(
    name: str, is_written: bool, may: bool
) -> None:
    assert may_steer(name, is_written=is_written) is may


@contextmanager
def watched(w: Watched) -> Iterator[Watchman]:
    w.begin()
    w.lookout.inotify = InotifyQueue()
    w.look()  # it listens where it looks
    try:
        yield Watchman(w.lookout)
    finally:
        w.lookout.close()


def is_there(w: Watched, name: str) -> bool:
    return (w.top / name).exists()


async def until_gone(w: Watched, name: str) -> None:
    w.put(name, EVIL)
    await until(lambda: not is_there(w, name))


@pytest.mark.anyio
async def test_one_setting_after_the_other_is_put_back_though_the_pause_is_long(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchman, "_QUIET", _NEVER)
    monkeypatch.setattr(watchman, "_UNASKED", _NEVER)
    repository(w)
    with watched(w) as watch:
        repository(w, "new/.git")
        w.look()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run)
            for _ in range(3):
                await until_gone(w, "new/.git/config")
            await until_gone(w, "new/.git/hooks/pre-commit")
            tasks.cancel_scope.cancel()
