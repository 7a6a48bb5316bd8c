"""Being told by the file system, in milliseconds. Knows names, not what the files mean."""

import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import anyio

from ironcurtain_proxy.sandbox.inotify import Inotify

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.004
"""How long the watch waits for more before it tells, as where a log beside the mailbox grows."""
_TIMEOUT_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.25


async def watch_directory(path: Path, stop: anyio.Event) -> AsyncGenerator[set[str], None]:
    """The names of what was made or changed in the directory; an empty set every second.

    Where it cannot be watched (no more watches left, another system than Linux), only the empty
    sets come: whoever reads this looks for himself then. Ends when `stop` is set.
    """
    try:
        inotify = _watching(path)
    except (OSError, AttributeError) as error:  # AttributeError: the system has no such call
        _log.warning("%s cannot be watched, only looked at: %s", path, error)
        with anyio.move_on_after(_RETRY_SECONDS):
            await stop.wait()
        yield set()
        return
    try:
        while not stop.is_set():
            yield await _changed(inotify, stop)
    finally:
        inotify.close()


def _watching(path: Path) -> Inotify:
    inotify = Inotify()
    # The directory that a link leads to.
    if not inotify.add(f"{path}/.", contents=True):
        inotify.close()
        raise OSError("no more directories can be watched, or it is not there")
    return inotify


async def _changed(inotify: Inotify, stop: anyio.Event) -> set[str]:
    async with anyio.create_task_group() as tasks:

        async def end() -> None:
            await stop.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(end)
        with anyio.move_on_after(_TIMEOUT_SECONDS):
            await anyio.wait_readable(inotify.descriptor)
            await anyio.sleep(_PAUSE_SECONDS)
        tasks.cancel_scope.cancel()
    return {event.name for event in inotify.events()}
