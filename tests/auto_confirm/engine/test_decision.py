"""The record of a decision holds what it rests on, and has no word for a denial."""

from typing import get_args

import pytest
from msgspec.structs import fields, replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import (
    CHECKS,
    EngineAction,
    EngineCheck,
    EngineDecision,
)
from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction
from ironcurtain_proxy.auto_confirm.engine.settings import (
    MatrixWord,
    RuleAction,
    SafetyRule,
    UnknownAction,
)
from ironcurtain_proxy.auto_confirm.store.rows import Status
from ironcurtain_proxy.model.decision import Engine
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import CALM, ON, decided, follows

RULE = SafetyRule(pattern="network", action="escalate")
SURE = replace(CALM, health="well", patterns=(calls.pattern("edit", "/srv/other/a"),))
DECISIONS = [
    decided(calls.read("/srv/project/a")),
    decided(calls.edit("/srv/other/a"), ON, SURE),
    decided(replace(calls.fetch(), sandboxed=True, snapshot=True), ON, SURE),
    decided(calls.fetch()),
    decided(calls.delete()),
    decided(calls.shell("deploy")),
    decided(replace(calls.strange("/"), session="architect_manager")),
]


@pytest.mark.requirement("X-6", "B-88")
@pytest.mark.parametrize("words", [EngineAction, MatrixWord, RuleAction, UnknownAction])
def test_no_word_of_the_engine_denies(words: object) -> None:
    denials = ("deny", "denied", "refuse", "reject", "block")
    assert not [word for word in get_args(words) if any(d in word for d in denials)]


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.requirement("B-89", "B-104", "B-168")
def test_a_record_says_what_is_to_be_done_and_what_that_rests_on(decision: EngineDecision) -> None:
    record = decision.as_json()
    assert (record.get("auto") is True) == decision.approves
    assert {"action", "reason", "target"} <= set(record)
    assert (record["target"] is None) == decision.approves
    assert follows(decision)


def test_the_examples_cover_every_action() -> None:
    assert {decision.action for decision in DECISIONS} == set(get_args(EngineAction))


def test_the_record_has_every_field_of_the_decision() -> None:
    assert len(DECISIONS[3].as_json()) == len(fields(EngineDecision))


def test_every_check_has_its_word() -> None:
    assert tuple(name for name, _ in CHECKS) == get_args(EngineCheck)[:-1]


@pytest.mark.requirement("B-46", "B-47", "B-58", "B-119")
def test_a_decision_says_who_decided_and_the_states_are_the_document_s() -> None:
    assert DECISIONS[0].decided_by == Engine("safety-rule")
    documented = {"pending", "approved", "rejected", "auto_approved", "held", "escalated"}
    assert documented == set(get_args(Status))


def test_the_same_input_gives_the_same_decision() -> None:
    interaction: Interaction = calls.fetch()
    assert decided(interaction) == decided(replace(interaction))
