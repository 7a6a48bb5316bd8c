"""The budgets of approved plans.

A plan is a list of announced calls. Its approval is a budget: capabilities, and a number of calls
of each tool, until the run ends. A budget settles only the profile's reasons; every call still
passes the policy.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.opening import NOTHING_OPENED, SandboxOpening

Tool: TypeAlias = tuple[str, str]
"""The operator's name of the server, and the tool."""

MAX_RUNS: Final = 100
"""The most open runs of a session, which an agent could open without end."""


class Budget(Struct, kw_only=True):
    """The remaining budget of one run."""

    id: GrantId
    capabilities: frozenset[Capability]
    calls: Counter[Tool]
    """The remaining calls of each tool."""
    expires: datetime
    """Aware, UTC."""
    opened: SandboxOpening = NOTHING_OPENED
    """The access beyond the sandbox that the plan's question named."""
    private: bool = False
    """Whether only calls that name the run may use it: those of a composite tool."""
    parent: "Budget | None" = None
    children: "list[Budget]" = field(default_factory=list)

    def covers(self, tool: Tool, capabilities: Iterable[Capability]) -> bool:
        """Whether a call is within the budget."""
        return self.calls[tool] > 0 and self.capabilities.issuperset(capabilities)

    def holds(self, calls: Mapping[Tool, int], capabilities: frozenset[Capability]) -> bool:
        """Whether a plan of such calls is within the budget."""
        enough = all(self.calls[tool] >= count for tool, count in calls.items())
        return enough and self.capabilities >= capabilities


class BudgetBook:
    """The open runs of one session, oldest first.

    Every method is done without waiting, so tasks of one event loop never see it half-changed. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._open: dict[GrantId, Budget] = {}

    def open(self, budget: Budget) -> bool:
        """Begin a run. False: there are too many.

        A child's budget is taken from its parent (the caller has checked that it fits).
        """
        if len(self._open) >= MAX_RUNS:
            return False
        if budget.parent is not None:
            budget.parent.calls.subtract(budget.calls)
            budget.parent.children.append(budget)
        self._open[budget.id] = budget
        return True

    def get(self, identifier: str, now: datetime) -> Budget | None:
        """An open run."""
        self._tidy(now)
        return self._open.get(GrantId(identifier))

    def find(
        self,
        tool: Tool,
        capabilities: frozenset[Capability],
        now: datetime,
        run: GrantId | None = None,
    ) -> Budget | None:
        """The first run that covers a call; None: no run does. Its budget stays unchanged.

        Args:
            tool: the tool.
            capabilities: the capabilities to cover.
            now: aware, UTC.
            run: the one run that the call belongs to; None: any that is not private.
        """
        self._tidy(now)
        for budget in list(self._open.values()):
            if budget.private if run is None else budget.id != run:
                continue
            if budget.covers(tool, capabilities):
                return budget
        return None

    def spend(self, budget: Budget, tool: Tool) -> None:
        """Subtract one call from a run just found. The last call ends it."""
        budget.calls[tool] -= 1
        if not +budget.calls and not budget.children:
            self.close(budget.id)

    def close(self, identifier: GrantId) -> bool:
        """End a run with its children. A child's remaining budget is not returned to its parent.

        False: it is not open.
        """
        budget = self._open.pop(identifier, None)
        if budget is None:
            return False
        for child in list(budget.children):
            self.close(child.id)
        if budget.parent is not None and budget in budget.parent.children:
            budget.parent.children.remove(budget)
        return True

    def clear(self) -> int:
        """End all runs. Returns their number."""
        count = len(self._open)
        self._open.clear()
        return count

    def _tidy(self, now: datetime) -> None:
        for budget in list(self._open.values()):
            if now >= budget.expires:
                self.close(budget.id)
