"""Notices of wanted reviews, summaries of approvals, abandoned reviewers: sent in the background.

No call waits for a notice, and failed notices are dropped. `review.open_questions` has the texts.

A notice has few, harmless characters and no text of a call: a model may read it, and such a text
could be a prompt injection.
"""

import logging
import os
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from subprocess import DEVNULL
from typing import Final, TypeAlias, assert_never

import anyio
import anyio.to_thread
import orjson
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import Struct

from ironcurtain_proxy import children
from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths, OperationKind
from ironcurtain_proxy.auto_confirm.notice_channels import (
    CommandChannel,
    FileChannel,
    NoticeChannel,
    TmuxChannel,
    WebhookChannel,
)
from ironcurtain_proxy.auto_confirm.reviewers.process import BASE
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.private_files import append_line
from ironcurtain_proxy.review.open_questions import post_once

# --- notices


MAX_WORD: Final = 100
"""Characters."""

# No blank, no quote, and none of `#`, `%` and `$`: tmux runs the command in `#(…)`.
_HARMFUL: Final = re.compile(r"[^A-Za-z0-9._:@/+-]", re.ASCII)

_ESCALATION: Final = "permission_escalation"
_SUMMARY: Final = "permission_summary"
_LOST: Final = "reviewer_given_up"


class EngineNotice(Struct, frozen=True):
    """A notice that a review is wanted, what was approved, or that a reviewer is abandoned."""

    fields: dict[str, Json]
    """The notice for programs."""
    text: str
    """The notice for a person, on one line."""
    arguments: tuple[str, ...]
    """The arguments for a command: the id and the operation, or a word instead of an id, and the
    figures or the name."""


def review_notice(
    *, interaction_id: str, operation: str, target: str, priority: int
) -> EngineNotice:
    """Make the notice of a wanted review from any texts."""
    identifier, doing, reviewer = _word(interaction_id), _word(operation), _word(target)
    fields: dict[str, Json] = {"type": _ESCALATION, "interaction_id": identifier}
    return EngineNotice(
        fields | {"operation": doing, "target": reviewer, "priority": priority},
        f"Permission review required: {doing} ({identifier}), for {reviewer}, priority {priority}",
        (identifier, doing),
    )


def lost_notice(reviewer: str) -> EngineNotice:
    """Make the notice of an abandoned reviewer from any name."""
    name = _word(reviewer)
    text = f"Reviewer {name} is given up: it ended again and again"
    return EngineNotice({"type": _LOST, "reviewer": name}, text, (_LOST, name))


def summary_notice(
    *, target: str, since: datetime, counts: Iterable[tuple[str, int]], highest_risk: Hundredths
) -> EngineNotice:
    """Make the notice of counted approvals.

    Args:
        target: who is told, by the operator's name.
        since: the last summary, or the session's start; aware.
        counts: operations, and how many calls of each were approved.
        highest_risk: of any of them.
    """
    ranked = [(_word(name), n) for name, n in sorted(counts, key=lambda one: (-one[1], one[0]))]
    total, told = sum(count for _, count in ranked), _word(target)
    start, risk = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), f"{highest_risk / 100:.2f}"
    each = ", ".join(f"{name} {count}" for name, count in ranked)
    fields: dict[str, Json] = {"type": _SUMMARY, "target": told, "since": start, "approved": total}
    return EngineNotice(
        fields | {"operations": dict(ranked), "highest_risk": highest_risk / 100},
        f"Permissions approved since {start}: {total} ({each}), highest risk {risk}, for {told}",
        (_SUMMARY, str(total), ",".join(f"{name}={n}" for name, n in ranked), risk, start),
    )


def _word(text: str) -> str:
    # A leading hyphen would make the argument an option.
    return _HARMFUL.sub("?", text[:MAX_WORD]).lstrip("-") or "?"


# --- ways on which notices leave ------------------------------------------------------------------
# The transports of notices: a command, a webhook, a file, a tmux status line.
#
# `tmux send-keys` is not used: it types text into whatever runs in the terminal, possibly a
# model or a shell.


MAX_FILE: Final = 16 << 20
"""The most bytes of the file."""

_DISPLAY_MILLISECONDS: Final = "5000"
_JSON: Final = {"Content-Type": "application/json"}
_TMUX_VARIABLES: Final = ("TMUX", "TMUX_TMPDIR")


class NoticeSender:
    """Sends notices. May raise anything; leaves nothing running."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Take the proxy's own environment: commands get the base of it."""
        self._environ = environ

    async def carry(self, channel: NoticeChannel, notice: EngineNotice) -> None:
        """Send one notice."""
        match channel:
            case CommandChannel():
                argv = (*channel.argv, *notice.arguments)
                await _run(argv, self._base())
            case WebhookChannel():
                await post_once(channel.url, orjson.dumps(notice.fields), _JSON)
            case FileChannel():
                line = orjson.dumps(notice.fields, option=orjson.OPT_APPEND_NEWLINE)
                # Abandoned where a disk hangs.
                append = partial(append_line, channel.path, line, MAX_FILE)
                await anyio.to_thread.run_sync(append, abandon_on_cancel=True)
            case TmuxChannel():
                await _run(_tmux(channel, notice), self._base(*_TMUX_VARIABLES))
            case _:
                assert_never(channel)

    def _base(self, *further: str) -> dict[str, str]:
        wanted = BASE.union(further)
        return {
            name: value
            for name, value in self._environ.items()
            if name in wanted or name.startswith("LC_")
        }


def _tmux(channel: TmuxChannel, notice: EngineNotice) -> tuple[str, ...]:
    server = () if channel.socket is None else ("-S", str(channel.socket))
    return (
        *("tmux", *server, "display-message", "-d", _DISPLAY_MILLISECONDS),
        *("-t", channel.target, "--", notice.text),
    )


async def _run(argv: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """Run a program to its end. When cancelled, kill it and its process group."""
    # Shielded: cancelled in the middle of a start, its own children would live on.
    with children.in_own_session() as started, anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            argv,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )
        started(process.pid)
    try:
        status = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await process.aclose()
            children.forget(process.pid)
    if status != 0:
        raise OSError(f"it ended with status {status}")


@dataclass(slots=True, kw_only=True)
class ApprovalTally:
    """The approvals since the last summary, by operation."""

    target: str
    """The target of the summary, by the operator's name."""
    clock: Clock
    _counts: Counter[OperationKind] = field(default_factory=Counter, init=False)
    _highest: Hundredths = field(default=0, init=False)
    _since: datetime = field(init=False)

    def __post_init__(self) -> None:
        self._since = self.clock.now()

    def add(self, decision: EngineDecision) -> None:
        """Count a call that the engine approved. Never raises."""
        self._counts[decision.operation] += 1
        self._highest = max(self._highest, decision.risk)

    def summary(self) -> EngineNotice | None:
        """Return the summary, or None if nothing was approved."""
        if not self._counts:
            return None
        return summary_notice(
            target=self.target,
            since=self._since,
            counts=self._counts.items(),
            highest_risk=self._highest,
        )

    def clear(self) -> None:
        """Reset the counts after a summary."""
        self._counts.clear()
        self._highest = 0
        self._since = self.clock.now()


_log: Final = logging.getLogger(__name__)

QUEUE: Final = 256
"""The most waiting notices; further ones are dropped and counted."""

DEADLINE: Final = 5.0
"""Seconds for one notice on one channel."""

LAST_DEADLINE: Final = 1.0
"""Seconds for the summary at the end, on all channels together."""

_WORKERS: Final = 4


Notify: TypeAlias = Callable[[EngineNotice], None]
"""`Notifier.notify`."""

Wait: TypeAlias = Callable[[float], Awaitable[None]]
"""Sleeps for this many seconds."""


class Summaries(Struct, frozen=True):
    """The schedule of summaries."""

    tally: ApprovalTally
    seconds: float
    """The time between two summaries, if anything was approved; above 0."""
    wait: Wait = anyio.sleep


@dataclass(slots=True, kw_only=True)
class Notifier:
    """Sends notices in the background, while `run` runs."""

    channels: Sequence[NoticeChannel]
    """The channels, or empty if nobody is told."""
    transport: NoticeSender
    summaries: Summaries | None = None
    """The summaries of approvals, or None if no summaries are sent."""
    deadline: float = DEADLINE
    at_most: int = QUEUE
    dropped: int = field(default=0, init=False)
    """Notices dropped because the queue was full or `run` had ended."""
    failed: int = field(default=0, init=False)
    """Notices that a channel failed to send."""
    delivered: int = field(default=0, init=False)
    _queue: MemoryObjectSendStream[EngineNotice] | None = field(default=None, init=False)

    def notify(self, notice: EngineNotice) -> None:
        """Queue a notice and return at once. Never raises."""
        if self.channels and not self._put(notice):
            self.dropped += 1
            _log.debug("a notification is dropped: too many wait")

    def approved(self, decision: EngineDecision) -> None:
        """Count an approval of the engine for the next summary. Never raises."""
        if self.channels and self.summaries is not None:
            self.summaries.tally.add(decision)

    def _put(self, notice: EngineNotice) -> bool:
        if self._queue is None:
            return False
        try:
            self._queue.send_nowait(notice)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send notices until cancelled.

        Waiting notices are then dropped; a last summary is sent if that is quick.
        """
        send, receive = anyio.create_memory_object_stream[EngineNotice](self.at_most)
        with send, receive:
            self._queue = send
            try:
                async with anyio.create_task_group() as tasks:
                    for _ in range(_WORKERS):
                        tasks.start_soon(self._work, receive)
                    if self.channels and self.summaries is not None:
                        tasks.start_soon(self._summarise, self.summaries)
                    task_status.started()
            finally:
                self._queue = None
                if self.summaries is not None:
                    with anyio.move_on_after(LAST_DEADLINE, shield=True):
                        await self._tell_summary(self.summaries.tally)

    async def _summarise(self, summaries: Summaries) -> None:
        while True:
            await summaries.wait(summaries.seconds)
            await self._tell_summary(summaries.tally)

    async def _tell_summary(self, tally: ApprovalTally) -> None:
        summary = tally.summary()
        if summary is None:
            return
        tally.clear()
        async with anyio.create_task_group() as tasks:
            for channel in self.channels:
                tasks.start_soon(self._tell, channel, summary)

    async def _work(self, queue: MemoryObjectReceiveStream[EngineNotice]) -> None:
        async for notice in queue:
            for channel in self.channels:
                await self._tell(channel, notice)

    async def _tell(self, channel: NoticeChannel, notice: EngineNotice) -> None:
        try:
            with anyio.fail_after(self.deadline):
                await self.transport.carry(channel, notice)
        except Exception as error:  # noqa: BLE001  a notice is no reason for anything to fail
            self.failed += 1
            # Its message may hold a secret of the channel, such as the webhook's address.
            _log.debug(
                "a notification failed: %s: %s", type(channel).__name__, type(error).__name__
            )
        else:
            self.delivered += 1
