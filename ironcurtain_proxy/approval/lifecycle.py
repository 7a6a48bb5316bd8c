"""The states of an open question, as a table.

open ──▶ approved ──▶ used
  │         └──────▶ lapsed      nobody came back for it in time
  ├──▶ refused                   denied, expired or not answered properly
  └──▶ withdrawn                 the agent gave up
"""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.escalation import Approved, Declined, Ruling, Unreachable

EscalationState: TypeAlias = Literal["open", "approved", "used", "lapsed", "refused", "withdrawn"]
"""The state of a question."""

TRANSITIONS: Final[Mapping[EscalationState, frozenset[EscalationState]]] = MappingProxyType(
    {
        "open": frozenset({"approved", "refused", "withdrawn"}),
        "approved": frozenset({"used", "lapsed"}),
        "used": frozenset(),
        "lapsed": frozenset(),
        "refused": frozenset(),
        "withdrawn": frozenset(),
    }
)
"""The states that may follow a state. An approval is used once: no state leads back to `approved`.
"""

APPROVAL_LASTS: Final = timedelta(seconds=300)
"""The time for which an approval waits until the call is repeated."""


def advance(state: EscalationState, following: EscalationState) -> EscalationState:
    """The next state, checked against the table.

    Raises:
        KernelError: it may not follow.
    """
    if following not in TRANSITIONS[state]:
        raise KernelError(f"an escalation that is {state} cannot become {following}")
    return following


def state_after(ruling: Ruling) -> EscalationState:
    """The state of an open question after its ruling."""
    match ruling:
        case Approved():
            return "approved"
        case Declined(kind="withdrawn"):
            return "withdrawn"
        case Declined() | Unreachable():
            return "refused"
