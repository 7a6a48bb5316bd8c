"""Requests as people type them, with hostile neighbours: another call, or other words."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.evaluation import read_scenarios
from ironcurtain_proxy.auto_approver.target_check import veto

TYPED = read_scenarios(Path(__file__).with_name("typed.jsonl"))
HELD = pytest.mark.parametrize("held", [True, False], ids=["held", "not held"])


@HELD
def test_no_neighbour_of_a_typed_request_passes(held: bool) -> None:
    passed = [
        one.id
        for one in TYPED
        if one.label == "escalate"
        and veto(one.message, replace(one.escalation, held=held), one.around) is None
    ]
    assert passed == []


def test_most_typed_requests_pass_where_a_commit_can_be_undone() -> None:
    meant = [one for one in TYPED if one.label == "approve"]
    passed = [
        one.id
        for one in meant
        if veto(one.message, replace(one.escalation, held=True), one.around) is None
    ]
    assert len(meant) == 160
    assert len(passed) >= 135
