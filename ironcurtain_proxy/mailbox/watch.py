"""File system events of a directory."""

import logging
from collections.abc import AsyncGenerator
from importlib import import_module
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

_log = logging.getLogger(__name__)
# At INFO it writes a line for every change.
logging.getLogger("watchfiles").setLevel(logging.WARNING)

_STEP_MS: Final = 4
"""How long the watch waits for more before it tells: its own default is 50."""
_DEBOUNCE_MS: Final = 8
"""It tells after this long even if changes go on, as those of a log beside the mailbox do."""
_TIMEOUT_MS: Final = 1000
_RETRY_SECONDS: Final = 0.25


async def watch_directory(path: Path, stop: anyio.Event) -> AsyncGenerator[set[str], None]:
    """The names of what was made or changed in the directory; an empty set every second.

    Where it cannot be watched (no more watches left, a strange file system), only the empty sets
    come: whoever reads this looks for himself then. Ends when `stop` is set.
    """
    # Imported for the first question, and not by the event loop: calls go on meanwhile.
    watchfiles = await anyio.to_thread.run_sync(import_module, "watchfiles")
    try:
        async for changes in watchfiles.awatch(
            path,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_TIMEOUT_MS,
            yield_on_timeout=True,
            recursive=False,
            watch_filter=None,
            stop_event=stop,
        ):
            yield {changed.rpartition("/")[2] for _, changed in changes}
    except (OSError, RuntimeError) as error:
        _log.warning("%s cannot be watched, only looked at: %s", path, error)
        with anyio.move_on_after(_RETRY_SECONDS):
            await stop.wait()
        yield set()
