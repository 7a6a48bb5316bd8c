"""Tells others that a review is wanted. Never waited for: what cannot be told is not told.

A notice holds an id, an operation, a target and a priority, each cleaned to a few harmless
characters, in a fixed form. It holds nothing of a call: some notices end up before a model, and
what stood in them could speak to it (X-18). How one is carried is `notification_channels`.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ironcurtain_proxy.review.notification_channels import Channel, Notice, Transport, notice_of

_log: Final = logging.getLogger(__name__)

QUEUE: Final = 256
"""Notices that wait. What comes on top is dropped and counted."""

DEADLINE: Final = 5.0
"""Seconds for one notice on one channel."""

_WORKERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A review is wanted."""

    interaction_id: str
    operation: str
    target: str
    """By the operator's name."""
    priority: int
    alert: bool = False
    """Everyone who can be told is told."""


Notify: TypeAlias = Callable[[Notification], None]
"""`Notifier.notify`."""


@dataclass(slots=True, eq=False)
class _Queue:
    send: MemoryObjectSendStream[Notification]
    receive: MemoryObjectReceiveStream[Notification]


@dataclass(slots=True, kw_only=True)
class Notifier:
    """Carries notices out in the background. Works only while `run` does."""

    channels: Sequence[Channel]
    """None: nobody is told."""
    transport: Transport
    deadline: float = DEADLINE
    at_most: int = QUEUE
    dropped: int = field(default=0, init=False)
    """Notices that found the queue full, or nobody at work."""
    failed: int = field(default=0, init=False)
    """Notices that a channel did not take."""
    delivered: int = field(default=0, init=False)
    _queue: _Queue | None = field(default=None, init=False)

    def notify(self, notification: Notification) -> None:
        """Have it told. Returns at once; never raises."""
        if not self.channels:
            return
        if not self._put(notification):
            self.dropped += 1
            _log.debug("a notification is dropped: too many wait")

    def _put(self, notification: Notification) -> bool:
        if self._queue is None:
            return False
        try:
            self._queue.send.send_nowait(notification)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Carry notices out until cancelled; what waits then is dropped."""
        send, receive = anyio.create_memory_object_stream[Notification](self.at_most)
        with send, receive:
            self._queue = _Queue(send, receive)
            try:
                async with anyio.create_task_group() as tasks:
                    for _ in range(_WORKERS):
                        tasks.start_soon(self._work, receive)
                    task_status.started()
            finally:
                self._queue = None
                with anyio.CancelScope(shield=True):
                    await self.transport.aclose()

    async def _work(self, queue: MemoryObjectReceiveStream[Notification]) -> None:
        async for notification in queue:
            notice = notice_of(
                interaction_id=notification.interaction_id,
                operation=notification.operation,
                target=notification.target,
                priority=notification.priority,
            )
            for channel in self.channels:
                if (
                    notification.alert
                    or not channel.targets
                    or (notification.target in channel.targets)
                ):
                    await self._tell(channel, notice)

    async def _tell(self, channel: Channel, notice: Notice) -> None:
        try:
            with anyio.fail_after(self.deadline):
                await self.transport.carry(channel, notice)
        except Exception as error:  # noqa: BLE001  a notice is no reason for anything to fail
            self.failed += 1
            # Its message may hold a secret of the channel, such as the webhook's address.
            _log.debug("a notification failed: %s: %s", channel.kind, type(error).__name__)
        else:
            self.delivered += 1
