"""A channel that opens after the start, such as the agent's own client."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ironcurtain_proxy.model.escalation import Escalation, Ruling, Unreachable
from ironcurtain_proxy.ports import Reviewer


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
