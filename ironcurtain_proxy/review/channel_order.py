"""The order in which reviewers are asked.

The LLM approver comes first, but only while a person could be asked after it: it assists a
person and replaces none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio
from msgspec import Struct

from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling, Unreachable
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import Reviewer


@dataclass(frozen=True, slots=True)
class Channel:
    """A way to a reviewer."""

    reviewer: Reviewer
    is_reachable: Callable[[], bool]
    """Whether somebody seems to be there. The answer may still be `Unreachable`."""
    can_sign: bool = False
    """Whether signed answers come by it. A question that needs them is asked nowhere else."""
    name: str = ""
    """The channel's name for the record: `mailbox`, `elicitation`, `terminal`."""


class FirstReviewer(Reviewer, Protocol):
    """A reviewer that is asked before any person, and told what a person refused."""

    def note_denied_by_person(self, fingerprint: str) -> None:
        """Never approve this call again."""


def _tell_nobody(_escalation: Escalation) -> None:
    """No notices."""


class Panel(Struct, frozen=True):
    """Asks its channels in turn until one answers. Implements `ports.Reviewer`."""

    channels: Sequence[Channel]
    """The channels in the order in which they are asked."""
    first: FirstReviewer | None = None
    """The LLM approver, or None if it is off."""
    shadow: bool = False
    """Whether the LLM approver is asked beside the others, and its answer recorded and not used."""

    tell: Callable[[Escalation], None] = _tell_nobody
    """Called with each question that a person is asked. Never blocks."""

    def is_reachable(self) -> bool:
        """Whether any channel seems to reach somebody."""
        return any(channel.is_reachable() for channel in self.channels)

    async def ask(self, escalation: Escalation) -> Ruling:
        """The first valid answer; `Unreachable` if there was none."""
        present = [
            channel
            for channel in self.channels
            if channel.is_reachable() and (channel.can_sign or escalation.signing is None)
        ]
        if not present:
            return Unreachable()
        if self.first is None:
            return await self._answer(present, escalation)
        if self.shadow:
            return await self._beside(self.first, present, escalation)
        ruling = await self.first.ask(escalation)
        if not isinstance(ruling, Unreachable):
            return ruling
        return _with(ruling.details, await self._answer(present, escalation))

    async def _beside(
        self, first: FirstReviewer, present: list[Channel], escalation: Escalation
    ) -> Ruling:
        """A person's answer, with the LLM approver's opinion if it was ready by then."""
        thought: list[tuple[str, Json]] = []

        async def think() -> None:
            ruling = await first.ask(escalation)
            # The LLM approver's approval is never used here, whatever it says of itself.
            thought.extend(ruling.details if isinstance(ruling, Unreachable) else ())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(think)
            ruling = await self._answer(present, escalation)
            tasks.cancel_scope.cancel()
        return _with(tuple(thought), ruling)

    async def _answer(self, present: list[Channel], escalation: Escalation) -> Ruling:
        self.tell(escalation)
        for channel in present:
            ruling = await channel.reviewer.ask(escalation)
            if isinstance(ruling, Unreachable):
                continue
            if self.first is not None and isinstance(ruling, Declined) and ruling.kind == "denied":
                self.first.note_denied_by_person(escalation.fingerprint)
            return replace(ruling, details=(*_way(channel, ruling), *ruling.details))
        return Unreachable()


def _with(thought: tuple[tuple[str, Json], ...], ruling: Ruling) -> Ruling:
    return replace(ruling, details=(*thought, *ruling.details))


def _way(channel: Channel, ruling: Approved | Declined) -> tuple[tuple[str, Json], ...]:
    """The channel by which the answer came."""
    is_answer = isinstance(ruling, Approved) or ruling.kind == "denied"
    return (("channel", channel.name),) if channel.name and is_answer else ()


@dataclass(slots=True)
class LateChannel:
    """Implements `ports.Reviewer`. Before it opens, it reaches nobody."""

    _reviewer: Reviewer | None = field(default=None, init=False)
    _is_reachable: Callable[[], bool] | None = field(default=None, init=False)

    def open(self, reviewer: Reviewer, is_reachable: Callable[[], bool]) -> None:
        """Ask this reviewer from now on."""
        self._reviewer, self._is_reachable = reviewer, is_reachable

    def is_reachable(self) -> bool:
        """Whether somebody seems to be there."""
        return self._is_reachable is not None and self._is_reachable()

    async def ask(self, escalation: Escalation) -> Ruling:
        """The reviewer's ruling."""
        if self._reviewer is None:
            return Unreachable()
        return await self._reviewer.ask(escalation)
