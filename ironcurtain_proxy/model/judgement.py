"""The judgement of a call: the policy's decision and all further reasons for a review."""

from msgspec import Struct

from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.decision import Decision
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.signing import Quorum


class Judgement(Struct, frozen=True, kw_only=True):
    """The policy's decision after the overlay, which can only make it more severe."""

    decision: Decision
    reasons: tuple[OriginReason, ...] = ()
    """The reasons for a review, the policy first; empty unless the call is escalated."""
    quorums: tuple[Quorum, ...] = ()
    """The persons who must sign an approval, where a rule says so."""
    capabilities: frozenset[Capability] = frozenset()
    """All capabilities that the call needs, whether or not the profile asks about them."""

    @property
    def asking(self) -> frozenset[Capability]:
        """The capabilities that the profile asks about."""
        return frozenset([name for reason in self.reasons for name in reason.capabilities])
