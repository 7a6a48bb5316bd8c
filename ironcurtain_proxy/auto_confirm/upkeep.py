"""The store of a session, opened when it is needed, and its upkeep.

A session ends abandoned rows, removes old ones, and copies the log.

Each step is a transaction in the background, because the session may end in between.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Final, Protocol, TypeVar

import anyio
import msgspec
from msgspec import Struct

from ironcurtain_proxy.auto_confirm.reviewer import LedgerError
from ironcurtain_proxy.auto_confirm.store.interactions import BATCH
from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.mailbox.mailboxes import is_alive, this_process
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.steady_clock import boot_id

# --- a store that is opened when it is first needed -----------------------------------------------
# The store, opened when it is first needed, and again after it was lost.


class LazyStore:
    """A store that is opened when it is first needed, in the thread that needs it."""

    def __init__(self, open_it: Callable[[], Store]) -> None:
        self._open = open_it
        self._lock = Lock()
        self._store: Store | None = None
        self._is_lost = self._is_closed = False

    def get(self) -> Store:
        """Return the store.

        Raises:
            StoreError: it cannot be opened. The next one who asks tries again.
        """
        with self._lock:
            if self._is_closed:
                raise StoreError("the store was closed")
            if self._store is None:
                self._store = self._open()
            elif self._is_lost:
                self._store = self._store.reopened()
            self._is_lost = False
            return self._store

    def current(self) -> Store | None:
        """Return the store if it is open and was not lost. Waits for nobody."""
        return None if self._is_lost else self._store

    def lose(self) -> None:
        """Note that the open store was lost: the next caller opens it anew."""
        self._is_lost = True

    def close(self) -> None:
        """Close the store for good: a late thread does not open it again."""
        with self._lock:
            self._is_closed = True
            if self._store is not None:
                self._store.close()
                self._store = None


_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

QUIET: Final = 10.0
"""Seconds after a session's first question before anything is removed."""

PAUSE: Final = 0.25
"""Seconds between two batches, for those who wait to write."""

AGAIN: Final = 3600.0
"""Seconds between two checks whether a purge is due."""

COPY: Final = 5.0
"""Seconds between two looks at the log of an SQLite store, once there was a question."""

LOOK: Final = 60.0
"""Seconds between two searches for rows of killed proxies."""


class InThread(Protocol):
    """Asks the store in a thread, with a deadline."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run it in a thread. Raise `LedgerError` where it fails."""


class Upkeep(Struct, kw_only=True):
    """One for each session."""

    store: LazyStore
    in_thread: InThread
    keep: timedelta | None = None
    """The time for which the store keeps ended interactions. `None` means for ever."""
    quiet: float = QUIET
    used: anyio.Event = msgspec.field(default_factory=anyio.Event)
    """Set with the first question."""
    _said: set[str] = msgspec.field(default_factory=set)
    """The steps that failed last time."""

    async def run(self) -> None:
        """Work until cancelled. Never raises otherwise."""
        async with anyio.create_task_group() as tasks:
            if self.keep is not None:
                tasks.start_soon(self._remove_old, self.keep)
            tasks.start_soon(self._copy_log)
            while True:
                await self._tried("what killed proxies left open stays so", self._end_abandoned)
                await anyio.sleep(LOOK)

    async def _remove_old(self, keep: timedelta) -> None:
        await self.used.wait()
        await anyio.sleep(self.quiet)
        while True:
            await self._tried("old interactions are not removed", lambda: self._purge(keep))
            await anyio.sleep(AGAIN)

    async def _copy_log(self) -> None:
        await self.used.wait()
        while True:
            await anyio.sleep(COPY)
            await self._tried("the store's log is not copied into its file", self._copy)

    async def _copy(self) -> None:
        # A server has no such file, and a store that is not open has nothing new to copy.
        store = self.store.current()
        if store is not None and store.has_log:
            await self.in_thread(store.copy_log)

    async def _tried(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            self._said.discard(what)
        except LedgerError as error:
            # Logged once in an outage: each of these steps is tried again and again.
            _log.log(
                logging.DEBUG if what in self._said else logging.WARNING, "%s: %s", what, error
            )
            self._said.add(what)
        except Exception:  # noqa: BLE001  a defect here must not end the engine
            _log.exception("%s", what)

    async def _end_abandoned(self) -> None:
        count = total = await self.in_thread(lambda: self.store.get().end_abandoned(is_gone))
        while count == BATCH:
            await anyio.sleep(PAUSE)
            count = await self.in_thread(lambda: self.store.get().end_abandoned(is_gone))
            total += count
        if total:
            _log.info("%d open questions of proxies that are gone were ended", total)

    async def _purge(self, keep: timedelta) -> None:
        count = total = await self.in_thread(lambda: self.store.get().begin_purge(keep))
        while count == BATCH:
            await anyio.sleep(PAUSE)
            count = await self.in_thread(lambda: self.store.get().go_on_purging(keep))
            total += count
        if total:
            days = keep / timedelta(days=1)
            _log.info("%d interactions older than %g days were removed", total, days)


_PARTS: Final = 4


def this_owner() -> str | None:
    """Return the identity of this process, boot and PID namespace, or None if unknown.

    Machines and containers may share a store, and a process id is meaningful in one boot and one
    PID namespace only. Outside of these, an owner never counts as gone.
    """
    place, process = _place(), this_process()
    if place is None or not process.start_time:
        return None
    return f"{place} {process.pid} {process.start_time}"


def is_gone(owner: str) -> bool:
    """Return whether a process has certainly ended; False for values of other programs."""
    *place, number, started = owner.split(" ") if owner.count(" ") == _PARTS - 1 else ("", "", "")
    if " ".join(place) != _place() or not (number.isascii() and number.isdigit() and started):
        return False
    try:
        return not is_alive(Owner(int(number), started))
    except (OverflowError, ValueError):
        return False


def _place() -> str | None:
    with suppress(OSError):
        namespace = Path("/proc/self/ns/pid").readlink()
        return f"{boot_id()} {namespace}" if boot_id() else None
    return None
