"""The thread that writes records, the file that it writes to, and the thread that syncs it.

One thread appends. A write that hangs blocks only this thread: a caller that waits for a group of
lines stops waiting at its deadline.

A hand-over to the thread costs some 30 µs, twice for each call (an asyncio future from a thread: 50
to 100). So the loop may write itself, in 8 µs, as long as the disk has shown less than a tenth of a
second ago, to one of the threads, that it does not hang. Should such a write hang all the same, the
loop hangs with it, and this thread is the one that notices and ends the process.

The thread that syncs written lines to the disk also updates the head file. It holds no lock that
the writing thread waits for: a slow disk delays only the moment from which a line survives a power
failure.

Where a write itself does not return, the event loop hangs in the kernel: it forwards nothing and
answers nothing. Another thread then ends the process, so that the agent and the servers see their
pipes close.
"""

import errno
import math
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.audit.files import (
    next_rotated_path,
    write_head,
)
from ironcurtain_proxy.audit.records import Link
from ironcurtain_proxy.audit.recovery import OpenedLog, open_new
from ironcurtain_proxy.model.reply import RecordedDoor

# --- the thread that syncs

GROUP_SECONDS: Final = 0.05
"""Seconds for which lines are collected; with `fsync`, a line waits at most 100 ms."""

STUCK_SECONDS: Final = 10.0
"""Seconds after which an unsynced line counts as a failed write."""
CONFIRM_SECONDS: Final = 1.0
"""Seconds for which that must stay so. A process that was paused (SIGSTOP, a virtual machine, a
container) finds all its waits too long, and ends them a moment later."""

HELD_UP_SECONDS: Final = 0.02
"""Seconds; a sync on a healthy disk takes less."""

RETRY_SECONDS: Final = 1.0
"""Seconds until the next attempt at the head file after a lack of descriptors."""

_PASSING: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EINTR, errno.EAGAIN}
)


def is_passing(error: OSError) -> bool:
    """Return whether the error is a lack of descriptors or memory, not a fault of the disk."""
    return error.errno in _PASSING


class Syncer:
    """Calls `fsync` for groups of lines, at most `GROUP_SECONDS` after the first of each."""

    def __init__(
        self, path: Path, file: int, last: Link, on_failure: Callable[[str], None]
    ) -> None:
        self._path = path
        self._last = last
        """The last line that the head file is known to name, or that stood in the log before."""
        self._file = file
        self._on_failure = on_failure
        self._retired: list[int] = []
        self._written: Link | None = None
        self._headless: Link | None = None
        """The last synced line, where the head file does not name it yet."""
        self._waiting_since: float | None = None
        self._stuck_since: float | None = None
        """The moment at which a line was first found to have waited too long."""
        self._busy_since: float | None = None
        self.healthy_at = -math.inf
        """The end of this thread's last sync, in seconds of the monotonic clock."""
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sync {path.name}", daemon=True)
        self._thread.start()

    def written(self, last: Link) -> None:
        """Note written lines. The writing thread calls this, and never waits.

        Raises:
            OSError: earlier lines have waited too long.
        """
        self._written = last
        # Read once: the syncing thread may reset it at any moment.
        since, now = self._waiting_since, time.monotonic()
        if since is None:
            self._waiting_since = now
            self._stuck_since = None
            self._wake.set()
        elif now - since > STUCK_SECONDS:
            if self._stuck_since is None or self._stuck_since < since:
                self._stuck_since = now
            if now - self._stuck_since < CONFIRM_SECONDS:
                return
            raise OSError(f"the disk has not stored the data written {STUCK_SECONDS:.0f} s ago")

    def is_held_up(self) -> bool:
        """Return whether the disk is slow at this moment."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > HELD_UP_SECONDS

    def retire(self, old: int, new: int) -> None:
        """Note that the log continues in another file; the old one is synced, then closed."""
        # In this order: `_sync` looks at the current file first, so it never misses the old one.
        self._retired.append(old)
        self._file = new

    def stop(self, timeout: float) -> bool:
        """Sync the remaining lines and end the thread. Return whether it ended in time.

        Args:
            timeout: seconds.
        """
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._wake.wait(None if self._headless is None else RETRY_SECONDS)
            self._wake.clear()
            stopping = self._stopping.wait(GROUP_SECONDS)
            self._busy_since = time.monotonic()
            try:
                self._sync(lasting=stopping)
                self.healthy_at = time.monotonic()
                self._busy_since = None
            except OSError as error:
                # After a failed fsync the state of the disk is unknown (PostgreSQL's fsyncgate).
                self._on_failure(f"fsync: {error.strerror or error}")
                return
            if stopping:
                if self._headless is None and self._waiting_since is None:
                    with suppress(OSError):
                        write_head(self._path, self._last, lasting=True, closed=True)
                return

    def _sync(self, *, lasting: bool) -> None:
        if self._waiting_since is None:
            self._try_head(lasting=lasting)
            return
        # INVARIANT: what is written after this line wakes us again; what was written before it is
        # in the files that we sync below.
        self._waiting_since = None
        last = self._written
        os.fsync(self._file)
        while self._retired:
            os.fsync(self._retired[0])
            os.close(self._retired.pop(0))
        if last is not None:
            self._headless = last
        self._try_head(lasting=lasting)

    def _try_head(self, *, lasting: bool) -> None:
        """Write the head file, or leave it to the next attempt.

        INVARIANT: a lack of descriptors does not latch the log. The lines are on the disk; the head
        file only lags behind them, which `verify` says.
        """
        if self._headless is None:
            return
        try:
            write_head(self._path, self._headless, lasting=lasting)
        except OSError as error:
            if not is_passing(error):
                raise
        else:
            self._last = self._headless
            self._headless = None


EXIT_HUNG = 70
"""EX_SOFTWARE of sysexits.h."""


# --- a write that does not return -----------------------------------------------------------------


def end_process(why: str) -> NoReturn:
    """Report the reason on stderr, close every pipe and socket, and end this process at once.

    The descriptors are closed first, because a process with a thread that waits for a disk may
    survive SIGKILL.
    """
    with suppress(OSError):
        # stderr can be a pipe without a reader.
        os.set_blocking(2, False)
        os.write(2, f"ironcurtain-proxy: audit log: {why}; ending\n".encode())
    for descriptor in _descriptors():
        with suppress(OSError):
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
                os.close(descriptor)
    os._exit(EXIT_HUNG)


def _descriptors() -> list[int]:
    try:
        return sorted([int(entry.name) for entry in Path("/proc/self/fd").iterdir()])
    except OSError:
        return [0, 1, 2]


# --- the thread that writes

FsyncPolicy: TypeAlias = Literal["group", "always"]
"""The moment at which a record is on the disk: at most 100 ms after `record` returned, or before it
returns."""


class LogSettings(Struct, frozen=True, kw_only=True):
    """The operator's settings of a log."""

    redaction: bool = True
    """Whether secrets are masked before they are written."""
    door: RecordedDoor = "mcp"
    """The door of the calls whose records say nothing else."""
    fsync: FsyncPolicy = "group"
    write_deadline: float = 2.0
    """Seconds until a write counts as failed."""
    max_bytes: int | None = None
    """The size at which a new file is begun. `None` means never."""


Write: TypeAlias = Callable[[int, bytes], int]
"""`os.write`. Tests hand in one that hangs."""

OnHang: TypeAlias = Callable[[str], None]
"""Called on a thread of ours with the reason when the loop hangs in a write."""


class Group:
    """Lines that are written together."""

    __slots__ = ("data", "error", "finished", "last", "on_finish")

    def __init__(self, data: bytes, last: Link) -> None:
        self.data = data
        """One or more sealed lines."""
        self.last = last
        """The position of the last of them."""
        self.error: str | None = None
        """The error, once finished, or None if the operating system has every byte."""
        self.finished = threading.Lock()
        """Locked until the group is finished."""
        self.finished.acquire()
        self.on_finish: Callable[[], None] | None = None
        """Called by the writing thread, if set, when the group is finished."""


class LogFile:
    """The log itself. One thread at a time calls `append`."""

    def __init__(
        self, opened: OpenedLog, syncer: Syncer, settings: LogSettings, write: Write
    ) -> None:
        self._path, self._name = opened.path, str(opened.path)
        self._file = opened.file
        self._identity = _identity(opened.file)
        self._size = opened.size
        self._syncer = syncer
        self._max_bytes = settings.max_bytes
        self._sync_each = settings.fsync == "always"
        self._write = write

    def is_full(self, size: int) -> bool:
        """Return whether `size` more bytes need a new file."""
        return self._max_bytes is not None and 0 < self._size > self._max_bytes - size

    def append(self, data: bytes, last: Link) -> None:
        """Write a group of lines, completely or not at all.

        Args:
            data: one or more sealed lines.
            last: the place of the last of them.

        Raises:
            OSError: it could not be written. The file ends with the last complete line if that was
                possible, else the next start repairs it.
        """
        self._check_untouched()
        if self._max_bytes is not None and self.is_full(len(data)):
            self._rotate_if_possible()
        try:
            if (written := self._write(self._file, data)) < len(data):
                self._write_rest(data, written)
        except OSError:
            # A line that was not acknowledged must not stay in the middle of the log.
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)
        if self._sync_each:
            os.fsync(self._file)
        self._syncer.written(last)

    def close(self) -> None:
        """Close the descriptor. No thread may use the file afterwards."""
        os.close(self._file)

    def _write_rest(self, data: bytes, written: int) -> None:
        while written < len(data):
            # A full disk takes what fits; the next attempt says why it took no more.
            more = self._write(self._file, data[written:])
            if more <= 0:
                raise OSError("the file takes no more bytes")
            written += more

    def _check_untouched(self) -> None:
        """Check that the log has its place and its length.

        Raises:
            OSError: it was deleted, moved, replaced or changed while we had it open.
        """
        try:
            found = os.stat(self._name, follow_symlinks=False)  # noqa: PTH116  half the time
        except FileNotFoundError as error:
            raise OSError("the log was deleted or moved away while it was open") from error
        # No other file gets this number while ours is open.
        if (found.st_ino, found.st_dev) != self._identity:
            raise OSError("the log was replaced by another file while it was open")
        if found.st_size != self._size:
            raise OSError("the log was changed by someone else while it was open")

    def _rotate_if_possible(self) -> None:
        """Begin a new file; without a free descriptor, the old file stays in use for a while."""
        try:
            self._rotate()
        except OSError as error:
            if not is_passing(error):
                raise

    def _rotate(self) -> None:
        """Move the full file away and begin a new one. The chain goes on."""
        aside = next_rotated_path(self._path)
        self._path.rename(aside)
        try:
            file = open_new(self._path)
        except OSError:
            aside.rename(self._path)
            raise
        self._syncer.retire(self._file, file)
        self._file = file
        self._identity = _identity(file)
        self._size = 0


def _identity(file: int) -> tuple[int, int]:
    found = os.fstat(file)
    return found.st_ino, found.st_dev


class Writer:
    """The thread. One group at a time."""

    def __init__(self, path: Path, file: LogFile, settings: LogSettings, on_hang: OnHang) -> None:
        self._file = file
        self._deadline = settings.write_deadline
        self._on_hang = on_hang
        self._next: Group | None = None
        self._stopping = False
        self._inline_since: float | None = None
        self._seen_inline: float | None = None
        """`_inline_since` when the thread looked last."""
        self.healthy_at = -math.inf
        """The end of this thread's last write, in seconds of the monotonic clock."""
        self._wake = threading.Lock()
        self._wake.acquire()
        # A write that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"audit {path.name}", daemon=True)
        self._thread.start()

    def submit(self, group: Group) -> None:
        """Submit a group. The previous group must be finished."""
        self._next = group
        self._wake.release()

    def write_inline(self, data: bytes, last: Link) -> float:
        """Write on the caller's thread. The previous group must be finished.

        Returns:
            How many seconds it took.

        Raises:
            OSError: as `LogFile.append`.
        """
        began = time.monotonic()
        self._inline_since = began
        try:
            self._file.append(data, last)
        finally:
            self._inline_since = None
        return time.monotonic() - began

    def stop(self, timeout: float) -> bool:
        """End the thread. Return whether it ended; it does not while a write hangs.

        Args:
            timeout: seconds.
        """
        self._stopping = True
        with suppress(RuntimeError):
            self._wake.release()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            if not self._wake.acquire(timeout=self._deadline / 2):
                self._look_after_inline()
                continue
            group, self._next = self._next, None
            if group is not None:
                self._write(group)

    def _write(self, group: Group) -> None:
        try:
            self._file.append(group.data, group.last)
            self.healthy_at = time.monotonic()
        except Exception as error:  # noqa: BLE001  the record was not written
            group.error = explain(error)
        group.finished.release()
        if group.on_finish is not None:
            group.on_finish()

    def _look_after_inline(self) -> None:
        """End the process if the loop hangs in a write.

        The write must have been under way at the look before, too: while the process was paused,
        time went by and the write did not.
        """
        since, seen = self._inline_since, self._seen_inline
        self._seen_inline = since
        if since is not None and since == seen and time.monotonic() - since > self._deadline:
            self._on_hang(f"a write has not returned for {self._deadline:g} s")


def explain(error: Exception) -> str:
    """Return the error of a write, in words for the operator."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return repr(error)
