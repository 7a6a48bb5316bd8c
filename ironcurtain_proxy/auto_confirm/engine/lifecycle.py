"""The states of an interaction, and how many may be held.

pending ──▶ auto_approved
   └─────▶ held ──▶ approved | rejected
            ├─────▶ escalated ──▶ approved | rejected     its reviewer did not answer: the next one
            │           └──────▶ timed_out ──▶ auto_approved | rejected      the final table
            └─────▶ timed_out                             there is no next one
"""

from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths
from ironcurtain_proxy.auto_confirm.engine.risk import HIGH_AT_MOST

MOST_HELD: Final = 3


def may_hold(held_risks: Sequence[Hundredths]) -> bool:
    """Whether another call of a session may be held.

    Args:
        held_risks: the risk of each call of the session that is held, in hundredths.
    """
    return len(held_risks) <= MOST_HELD and all(risk <= HIGH_AT_MOST for risk in held_risks)
