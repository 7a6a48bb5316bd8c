"""What is decided of a call before anyone is asked."""

from dataclasses import dataclass

from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.decision import Decision
from ironcurtain_proxy.model.escalation import OriginReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The policy's decision after the overlay, which can only have made it more severe."""

    decision: Decision
    reasons: tuple[OriginReason, ...] = ()
    """What asks for a review, the policy first; empty unless the decision is to escalate."""
    capabilities: frozenset[Capability] = frozenset()
    """What the call can do, whether or not anything asks about it."""

    @property
    def asking(self) -> frozenset[Capability]:
        """The capabilities that the profile asks about."""
        return frozenset([name for reason in self.reasons for name in reason.capabilities])
