"""The policy's decision and what the operator wants to be asked about besides, as one. Pure.

No I/O, no clock, no log.
"""

from dataclasses import dataclass

from ironcurtain_proxy.model.decision import Decision, Escalate
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.judgement import Judged
from ironcurtain_proxy.model.request import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Capability profile and approval mode. Without any, the policy's decision is all."""

    def judge(self, kernel: Decision, facts: Facts, names: frozenset[str]) -> Judged:
        """What is decided of a call.

        Args:
            kernel: the policy's decision.
            facts: what the call names.
            names: what the operator may call its tool.
        """
        del facts, names
        if isinstance(kernel, Escalate):
            return Judged(
                decision=kernel, reasons=(OriginReason(origin="policy", ground=kernel.ground),)
            )
        return Judged(decision=kernel)
