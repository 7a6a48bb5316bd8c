"""The reviewers in the order they are asked. Knows the order, not how any of them is reached.

The auto-approver comes first, but only while somebody behind it could be asked as well: it is a
help to a person, not a substitute for one (R-21, R-39).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ironcurtain_proxy.model.escalation import Escalation, Ruling, Unreachable
from ironcurtain_proxy.ports import Reviewer


@dataclass(frozen=True, slots=True)
class Channel:
    """A way to a reviewer."""

    reviewer: Reviewer
    is_reachable: Callable[[], bool]
    """Whether somebody seems to be there. No promise: the answer may still be `Unreachable`."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Asks one after the other until one answers. Itself a `Reviewer`."""

    channels: Sequence[Channel]
    first: Reviewer | None = None
    """The auto-approver, if it is on."""

    async def ask(self, escalation: Escalation) -> Ruling:
        """The first answer that counts; `Unreachable` if nobody gave one."""
        present = [channel for channel in self.channels if channel.is_reachable()]
        if not present:
            return Unreachable()
        order = [channel.reviewer for channel in present]
        if self.first is not None:
            order.insert(0, self.first)
        for reviewer in order:
            ruling = await reviewer.ask(escalation)
            if not isinstance(ruling, Unreachable):
                return ruling
        return Unreachable()
