"""Counts what the engine approves by itself, for the summaries of `notify.notifier`."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from ironcurtain_proxy.auto_confirm.engine.decision import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths
from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.notify.notices import SummaryNotice, summary_notice
from ironcurtain_proxy.ports import Clock


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

    def summary(self) -> SummaryNotice | None:
        """The summary; None: nothing was approved."""
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
