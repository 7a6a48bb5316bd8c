"""Where a question may go."""

from itertools import product
from typing import get_args

import pytest

from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.case import (
    TRANSITIONS,
    EscalationState,
    advance,
    state_after,
)
from ironcurtain_proxy.model.decision import HUMAN
from ironcurtain_proxy.model.escalation import Approved, Declined, Unreachable

STATES = get_args(EscalationState)


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(STATES)


@pytest.mark.parametrize(("state", "following"), list(product(STATES, STATES)))
def test_only_what_the_table_says_may_follow(
    state: EscalationState, following: EscalationState
) -> None:
    if following in TRANSITIONS[state]:
        assert advance(state, following) == following
    else:
        with pytest.raises(KernelError):
            advance(state, following)


@pytest.mark.requirement("X-8")
def test_nothing_but_an_approval_leads_to_approved_and_nothing_leads_back() -> None:
    assert [s for s in STATES if "approved" in TRANSITIONS[s]] == ["open"]
    assert state_after(Approved(by=HUMAN)) == "approved"
    assert state_after(Unreachable()) == "refused"
    for kind in ("denied", "expired", "invalid"):
        assert state_after(Declined(by=HUMAN, kind=kind)) == "refused"
    assert state_after(Declined(by=HUMAN, kind="withdrawn")) == "withdrawn"
