"""Where an interaction may go, what may be held, and what silence comes to."""

from typing import get_args

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import (
    APPROVABLE,
    check_on_timeout,
    is_policy_critical,
    on_timeout,
)
from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction, OperationKind
from ironcurtain_proxy.auto_confirm.engine.risk import may_hold
from ironcurtain_proxy.auto_confirm.engine.settings import ROWS, AutoConfirmSettings
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import CALM, ON, decided

OPERATIONS: tuple[OperationKind, ...] = get_args(OperationKind)
LENIENT = replace(ON, on_timeout=dict.fromkeys(OPERATIONS, "approve"))
SICK = replace(CALM, health="stuck")


@pytest.mark.requirement("X-17", "B-59")
@pytest.mark.parametrize(
    ("held", "may"),
    [
        ((), True), ((30, 30, 30), True), ((30, 30, 30, 30), False), ((90,), True), ((91,), False),
        ((10, 100), False),
    ],
)  # fmt: skip
def test_four_held_or_one_critical_is_enough(held: tuple[int, ...], may: bool) -> None:
    assert may_hold(held) == may


@pytest.mark.requirement("B-172")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_silence_is_a_denial_unless_the_operator_says_otherwise(operation: OperationKind) -> None:
    decision = replace(decided(calls.read("/srv/project/a"), ON, SICK), operation=operation)
    assert decision.action == "escalate"
    assert on_timeout(decision, ON, policy_critical=False) == "deny"
    expected = "approve" if operation in APPROVABLE else "deny"
    assert on_timeout(decision, LENIENT, policy_critical=False) == expected


@pytest.mark.requirement("B-172")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_only_operations_whose_every_row_approves_may_be_configured(
    operation: OperationKind,
) -> None:
    assert bool(check_on_timeout({operation: "approve"})) == (operation not in APPROVABLE)
    assert check_on_timeout({operation: "deny"}) == ()


def test_what_is_approvable_is_what_the_matrix_approves() -> None:
    examples: dict[OperationKind, list[Interaction]] = {
        "edit": [calls.edit("/tmp/a"), calls.edit("/srv/project/a")],
        "read": [calls.read("/srv/project/a")],
        "git-pull": [calls.git("git_pull")],
        "git-fetch": [calls.git("git_fetch")],
        "shell-safe": [calls.shell("safe")],
    }
    for operation, interactions in examples.items():
        for decision in map(decided, interactions):
            assert (decision.operation, decision.verdict) == (operation, "approve")
            assert all(ROWS[k].level == "LOW" for k in ROWS if k in decision.rows)
    assert set(examples) | {"list"} == APPROVABLE


@pytest.mark.parametrize(
    ("interaction", "knowledge"),
    [
        (calls.read("/etc/a"), SICK),
        (calls.read("/home/ann/a"), replace(SICK, health="failing")),
        (calls.read("/srv/project/a"), replace(CALM, deployment=True)),
    ],
)
def test_silence_approves_nothing_that_is_risky_or_on_hold(
    interaction: Interaction, knowledge: object
) -> None:
    assert isinstance(knowledge, type(CALM))
    decision = decided(interaction, ON, knowledge)
    assert decision.operation == "read"
    assert on_timeout(decision, LENIENT, policy_critical=False) == "deny"


def test_silence_approves_nothing_that_the_policy_finds_critical() -> None:
    decision = decided(calls.read("/srv/project/a"), ON, SICK)
    assert on_timeout(decision, LENIENT, policy_critical=True) == "deny"
    off = AutoConfirmSettings(on_timeout={"read": "approve"})
    assert on_timeout(decision, off, policy_critical=False) == "deny"


def test_the_policy_is_critical_of_all_but_reading_and_writing_files() -> None:
    assert not is_policy_critical(("policy",), ("read-path", "write-path"))
    assert not is_policy_critical(("capability", "tool-policy"), ())
    assert is_policy_critical(("policy",), ())
    assert is_policy_critical(("policy",), ("read-path", "fetch-url"))
    assert is_policy_critical(("capability", "policy"), ("write-history",))
