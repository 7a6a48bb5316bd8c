"""The audit log: implements `ports.Recorder`.

Theory of operation: a record is encoded and sealed on the event loop, which fixes its order. Its
seal is a hash over its bytes and the seal before it, so that each line commits to all earlier ones.
The sealed line is then written: on the loop while the disk is known to respond, otherwise by a
thread (see `writer`). Waiting for the thread blocks the loop for at most 2 ms, which is three times
faster than a wake-up through the loop; a longer wait uses a future with a deadline. Records that
arrive together are written together.

    loop:    record ── seal ── submit ─┐ waits ≤ 2 ms ┌─ done │ else: a future, and a deadline
    writer:                            └── write(2) ──┘
    syncer:                                       └─ fsync, head file, within 100 ms

`record` returns once the operating system has the line. The head file names the last synced line,
so that lines cut off at the end are noticed. A failed or late write is final: the log is latched,
every later record fails, and so no further call is forwarded.
"""

import asyncio  # noqa: TID251  futures that a thread completes: anyio's way takes twice as long
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.records import (
    SECONDS,
    Denials,
    RecordEncoder,
    is_unasked,
    seal,
    summarize,
)
from ironcurtain_proxy.audit.recovery import OpenedLog, open_log
from ironcurtain_proxy.audit.writer import (
    STUCK_SECONDS,
    Group,
    LogFile,
    LogSettings,
    OnHang,
    Syncer,
    Write,
    Writer,
    explain,
)
from ironcurtain_proxy.errors import AuditError
from ironcurtain_proxy.jsonrpc.sending import Batch, PromptFuture
from ironcurtain_proxy.model.reply import AuditRecord

_log: Final = logging.getLogger(__name__)

_PATIENCE: Final = 0.002
"""Seconds that the loop may block for one write; longer would delay other calls."""

_WARY_TIMES: Final = 10
"""The multiple of a slow write's duration for which the event loop hands writes to a thread."""

_HEALTHY_SECONDS: Final = 0.1
"""Seconds for which the event loop trusts a disk after a thread's write succeeded."""

_LATCHED: Final = "no audit record can be written, so no call is forwarded; restart the proxy"
_CLOSED: Final = "the audit log is closed"
"""The message for callers. `AuditLog.latched` tells the operator the file and the reason."""


class AuditLog:
    """Appends records to one file that no other process writes.

    After a record that could not be written in time, every later record fails, too.
    """

    def __init__(
        self,
        opened: OpenedLog,
        settings: LogSettings,
        on_hang: OnHang | None = None,
        write: Write = os.write,
        batch: Batch | None = None,
    ) -> None:
        self.path: Final = opened.path
        """The file in use: its name may have the process id at its end."""
        self.notices: Final = opened.notices
        """Notices of the opening for the operator, one sentence each."""
        self._encoder = RecordEncoder(redaction=settings.redaction, door=settings.door)
        self._deadline = settings.write_deadline
        group = settings.fsync == "group"
        self._patience = _PATIENCE if group else 0.0
        self._may_be_inline = group and on_hang is not None
        self._wary_until = -math.inf
        self._last = opened.last
        self._lock = opened.lock
        self._closed = False
        self._failure: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._written: asyncio.Future[None]
        """Is done: without a slow disk a record does not wait."""
        self._batch = batch or Batch()
        self._turn_is_used = False
        self._under_way: Group | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._next: list[tuple[bytes, asyncio.Future[None] | None]] = []
        self._denials = Denials()
        self._counting: asyncio.TimerHandle | None = None
        self._syncer = Syncer(opened.path, opened.file, opened.last, self._latch)
        self._file = LogFile(opened, self._syncer, settings, write)
        self._writer = Writer(opened.path, self._file, settings, on_hang or self._latch)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        settings: LogSettings = LogSettings(),  # noqa: B008  frozen
        on_hang: OnHang | None = None,
        batch: Batch | None = None,
        *,
        is_shared: bool = False,
    ) -> "AuditLog":
        """Lock, repair if need be, and open a log. Needs no event loop.

        Args:
            path: created with its directories, for this user only, if it is not there.
            settings: how records are written.
            on_hang: called on a thread when a write has held the event loop up beyond the deadline;
                it can only end the process, as `writer.end_process` does. None: the loop never
                writes itself, which costs a call some 50 µs more and cannot hang.
            batch: what comes in it is written together.
            is_shared: whether it is no news that another process has the log.

        Raises:
            ConfigurationError: the file cannot be used.
        """
        return cls(open_log(Path(path), is_shared=is_shared), settings, on_hang, batch=batch)

    @property
    def latched(self) -> str | None:
        """The reason, for the operator, why records cannot be written; None while they can."""
        return self._failure

    summarize = staticmethod(summarize)
    """The summary of a result: its status, size and digest."""

    def record(self, record: AuditRecord) -> Awaitable[None]:
        """Write one record; once this was awaited, the operating system has it.

        A caller that is cancelled meanwhile stops waiting; its record is written all the same.

        Raises:
            AuditError: it could not be written in time, now or earlier, or the log is closed.
        """
        if self._failure is not None or self._closed:
            raise AuditError(_CLOSED if self._failure is None else _LATCHED)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._turn_is_used = False
            self._written = loop.create_future()
            self._written.set_result(None)
        result = record.result
        is_denied = result is not None and result.status == "denied" and is_unasked(record)
        body = self._body_of_denial(record) if is_denied else self._encoder.encode(record)
        if body is None:
            return self._written
        is_batch = self._batch.is_open
        if is_batch or self._turn_is_used or self._under_way is not None:
            # Other records are being written now: this one joins their group.
            waiting = self._next
            if is_batch and not waiting:
                self._batch.at_end(self._write_gathered)
            waiter: PromptFuture[None] = PromptFuture(loop=loop)
            waiting.append((body, waiter))
            return waiter
        return self._write_alone(body, loop)

    def close(self) -> None:
        """Write and sync all waiting records, and release the lock. Harmless if repeated.

        Blocks: some milliseconds on a healthy disk, at most a few deadlines.
        """
        if self._closed:
            return
        self._take_counts(time.monotonic())
        self._closed = True
        self._may_be_inline = False
        self._patience = self._deadline
        self._wary_until = -math.inf
        while self._under_way is not None or self._next:
            group = self._under_way
            if group is None:
                self._write_next()
            elif group.finished.acquire(timeout=self._deadline):
                self._acknowledge(group)
            else:
                self._give_up(group)
        # A thread that hangs still uses the file, so the lock is kept until the process ends. What
        # a hanging write brings later is synced and named by the head as any other line: a head
        # that says "closed" before would make it look like a stranger's.
        if self._writer.stop(self._deadline) and self._syncer.stop(STUCK_SECONDS):
            self._file.close()
            os.close(self._lock)

    # --- on the loop ---------------------------------------------------------------------------

    def _write_alone(self, body: bytes, loop: asyncio.AbstractEventLoop) -> Awaitable[None]:
        """Write a record that no other waits for."""
        data, self._last = seal([body], self._last)
        if self._is_inline_safe(len(data)):
            self._write_inline(data)
        else:
            self._turn_is_used = True
            loop.call_soon(self._end_turn)
            group = self._hand_over(data)
            if group is not None:
                waiter: PromptFuture[None] = PromptFuture(loop=loop)
                self._wait_for(group, [waiter])
                return waiter
        if self._failure is not None:
            raise AuditError(_LATCHED)
        return self._written

    def _body_of_denial(self, record: AuditRecord) -> bytes | None:
        """Return the encoded record of a denied call, or None if the call was counted instead."""
        now = time.monotonic()
        if self._denials.is_spent(now):
            self._denials.count(record)
            if self._denials.is_due(now):
                self._take_counts(now)
                return self._next.pop()[0]
            if self._counting is None and self._loop is not None:
                self._counting = self._loop.call_later(SECONDS, self._say_counts)
            return None
        body = self._encoder.encode(record)
        self._denials.charge(len(body))
        return body

    def _say_counts(self) -> None:
        """Write the counts since the last time."""
        self._counting = None
        if self._closed:
            return
        self._take_counts(time.monotonic())
        if not self._turn_is_used:
            self._write_gathered()

    def _take_counts(self, now: float) -> None:
        counted = self._denials.take(now)
        if counted is not None:
            self._next.append((self._encoder.encode_counted(counted), None))

    def _end_turn(self) -> None:
        self._turn_is_used = False
        self._write_gathered()

    def _write_gathered(self) -> None:
        if self._next and self._under_way is None:
            self._write_next()

    def _write_next(self) -> None:
        """Write all waiting records."""
        bodies = [body for body, _ in self._next]
        waiters = [waiter for _, waiter in self._next if waiter is not None]
        self._next = []
        if self._failure is not None:
            _fail(waiters)
            return
        group = self._write(bodies)
        if group is None:
            self._release(waiters)
        else:
            self._wait_for(group, waiters)

    def _write(self, bodies: list[bytes]) -> Group | None:
        """Write records.

        Returns:
            None: the write ended, with or without success (see `_failure`). Else: the group to
            wait for.
        """
        data, self._last = seal(bodies, self._last)
        if self._is_inline_safe(len(data)):
            self._write_inline(data)
            return None
        return self._hand_over(data)

    def _hand_over(self, data: bytes) -> Group | None:
        """Let the thread write. None: the write ended, with or without success."""
        group = Group(data, self._last)
        self._writer.submit(group)
        if time.monotonic() < self._wary_until:
            return group
        if self._patience > 0 and group.finished.acquire(timeout=self._patience):
            self._take_note_of(group)
            return None
        self._be_wary(self._patience)
        return group

    def _be_wary(self, seconds: float) -> None:
        """Note how long the loop was blocked."""
        self._wary_until = time.monotonic() + _WARY_TIMES * seconds

    def _is_inline_safe(self, size: int) -> bool:
        """Return whether a thread saw a moment ago that the disk responds."""
        now = time.monotonic()
        if not self._may_be_inline or now < self._wary_until or self._file.is_full(size):
            return False
        healthy_at = max(self._writer.healthy_at, self._syncer.healthy_at)
        return now - healthy_at < _HEALTHY_SECONDS and not self._syncer.is_held_up()

    def _write_inline(self, data: bytes) -> None:
        try:
            seconds = self._writer.write_inline(data, self._last)
        except Exception as error:  # noqa: BLE001  the record was not written
            self._latch(explain(error))
        else:
            if seconds > _PATIENCE:
                self._be_wary(seconds)

    def _wait_for(self, group: Group, waiters: list[asyncio.Future[None]]) -> None:
        """Wait without blocking the loop, for the writing thread or the deadline."""
        self._under_way = group
        self._waiters = waiters
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        self._timer = loop.call_later(self._deadline / 2, self._look_again, group)
        group.on_finish = partial(_wake, loop, partial(self._acknowledge, group))
        # It may have finished between our last look and the line above.
        if group.finished.acquire(blocking=False):
            self._acknowledge(group)

    def _acknowledge(self, group: Group) -> None:
        """Note that a group with a waiter is finished."""
        if group is not self._under_way:
            return
        self._stop_waiting()
        self._take_note_of(group)
        with self._batch:
            self._release(self._waiters)
        self._write_gathered()

    def _look_again(self, group: Group) -> None:
        """Wait for the second half of the deadline.

        In two halves, because a process that was paused (SIGSTOP, a virtual machine, a container)
        finds that the first has passed, and the disk did nothing wrong.
        """
        if group is self._under_way and self._loop is not None:
            self._timer = self._loop.call_later(self._deadline / 2, self._give_up, group)

    def _give_up(self, group: Group) -> None:
        """Note that the deadline has passed."""
        if group is not self._under_way:
            return
        if group.finished.acquire(blocking=False):
            self._acknowledge(group)
            return
        self._stop_waiting()
        self._latch(f"a write took longer than {self._deadline:g} s")
        self._release(self._waiters)
        if self._next:
            self._write_next()

    def _stop_waiting(self) -> None:
        self._under_way = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_note_of(self, group: Group) -> None:
        if group.error is not None:
            self._latch(group.error)

    def _release(self, waiters: list[asyncio.Future[None]]) -> None:
        if self._failure is not None:
            _fail(waiters)
            return
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _latch(self, why: str) -> None:
        """Stop recording for good. The syncing thread calls this, too."""
        if self._failure is None:
            self._failure = (
                f"audit log {self.path}: {why};"
                " no call is forwarded any more: mend this and restart the proxy"
            )
            # Logged only here: each call after this is refused with the same few words.
            _log.error("%s", self._failure)


def _fail(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(AuditError(_LATCHED))


def _wake(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    # Nobody waits on a loop that was closed meanwhile.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
