"""File system events of a directory.

On Linux the event loop waits for the kernel's own queue, which tells at once and costs nothing
while nothing happens. Elsewhere the readers look by themselves.
"""

import errno
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import anyio

from ironcurtain_proxy.sandbox.inotify import Inotify

_log = logging.getLogger(__name__)

_SECONDS: Final = 1.0
"""Seconds without a change after which an empty set is returned."""
_PAUSE: Final = 0.001
"""Seconds between two looks, where changes go on, as those of a log beside the mailbox do."""
_RETRY_SECONDS: Final = 0.25


async def watch_directory(path: Path, stop: anyio.Event) -> AsyncGenerator[set[str], None]:
    """The names of made or changed files in the directory; an empty set every second.

    Where it cannot be watched (no more watches left, a strange file system), only an empty set
    comes: whoever reads this looks for himself then. Ends when `stop` is set.
    """
    try:
        async with aclosing(_by_kernel(path, stop)) as found:
            async for names in found:
                yield names
    except OSError as error:
        if error.errno != errno.ENOSYS:
            _log.warning("%s cannot be watched and is polled: %s", path, error)
        with anyio.move_on_after(_RETRY_SECONDS):
            await stop.wait()
        yield set()


async def _by_kernel(path: Path, stop: anyio.Event) -> AsyncGenerator[set[str], None]:
    watch = Inotify()
    try:
        if not watch.add(str(path), contents=True):
            raise OSError("the system has no watch for it")
        while not stop.is_set():
            await _until_something_happens(watch.descriptor, stop)
            yield watch.names()
            await anyio.sleep(_PAUSE)
    finally:
        watch.close()


async def _until_something_happens(descriptor: int, stop: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:

        async def until_stopped() -> None:
            await stop.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(until_stopped)
        with anyio.move_on_after(_SECONDS):
            await anyio.wait_readable(descriptor)
        tasks.cancel_scope.cancel()
