"""The states of an interaction, and how many may be held. Pure: no I/O, no clock, no log.

pending ──▶ auto_approved
   └─────▶ held ──▶ approved | rejected
            ├─────▶ escalated ──▶ approved | rejected     its reviewer did not answer: the next one
            │           └──────▶ timed_out ──▶ auto_approved | rejected      the final table
            └─────▶ timed_out                             there is no next one
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths
from ironcurtain_proxy.auto_confirm.engine.risk import HIGH_AT_MOST
from ironcurtain_proxy.errors import KernelError

InteractionState: TypeAlias = Literal[
    "pending", "auto_approved", "held", "approved", "rejected", "escalated", "timed_out"
]
"""Where an interaction stands."""

TRANSITIONS: Final[Mapping[InteractionState, frozenset[InteractionState]]] = MappingProxyType(
    {
        "pending": frozenset({"auto_approved", "held"}),
        "held": frozenset({"approved", "rejected", "escalated", "timed_out"}),
        # Once: nothing leads from here to another reviewer.
        "escalated": frozenset({"approved", "rejected", "timed_out"}),
        "timed_out": frozenset({"auto_approved", "rejected"}),
        "auto_approved": frozenset(),
        "approved": frozenset(),
        "rejected": frozenset(),
    }
)
"""What may follow."""

MOST_HELD: Final = 3


def advance(state: InteractionState, following: InteractionState) -> InteractionState:
    """The state that follows.

    Raises:
        KernelError: it may not follow.
    """
    if following not in TRANSITIONS[state]:
        raise KernelError(f"an interaction that is {state} cannot become {following}")
    return following


def after_silence(state: InteractionState, *, has_next_reviewer: bool) -> InteractionState:
    """The state after a reviewer let its time pass.

    Raises:
        KernelError: nobody was asked in that state.
    """
    if state == "held" and has_next_reviewer:
        return advance(state, "escalated")
    return advance(state, "timed_out")


def may_hold(held_risks: Sequence[Hundredths]) -> bool:
    """Whether another call of a session may be held.

    Args:
        held_risks: the risk of each call of the session that is held, in hundredths.
    """
    return len(held_risks) <= MOST_HELD and all(risk <= HIGH_AT_MOST for risk in held_risks)
