"""The thread that syncs written lines to the disk, and updates the head file.

It holds no lock that the writing thread waits for: a slow disk delays only the moment from which
a line survives a power failure.

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
from typing import Final, NoReturn

from ironcurtain_proxy.audit.files import head_path, head_text
from ironcurtain_proxy.audit.records import Link

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

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_passing(error: OSError) -> bool:
    """Return whether the error is a lack of descriptors or memory, not a fault of the disk."""
    return error.errno in _PASSING


def write_head(log: Path, last: Link, *, lasting: bool, closed: bool = False) -> None:
    """Write a line's position to the head file, completely or not at all.

    On a full disk it is written over the old one, which takes no room: the log's last page may have
    had room for lines that would else look like a stranger's. A power failure at that moment could
    leave a head file that cannot be read, which the next start says.

    Args:
        log: the log.
        last: the place of its last line.
        lasting: whether a power failure must not undo it.
        closed: whether this process writes no further line.

    Raises:
        OSError: the old head file is still there.
    """
    head, text = head_path(log), head_text(last, closed=closed)
    new = head.with_name(f"{head.name}.new")
    try:
        _write(new, text, os.O_CREAT | os.O_TRUNC, lasting=lasting)
        new.replace(head)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        if error.errno not in _FULL:
            raise
        old = head.stat().st_size
        _write(head, text.ljust(old), 0, lasting=lasting)


def _write(path: Path, text: bytes, flags: int, *, lasting: bool) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    try:
        # A head file is too short to be written only in part.
        os.write(file, text)
        if lasting:
            os.fsync(file)
    finally:
        os.close(file)


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
