"""Decisions can be read back, and have no word for a denial."""

from dataclasses import fields, replace
from typing import get_args

import pytest

from ironcurtain_proxy.auto_confirm.engine import decision as module
from ironcurtain_proxy.auto_confirm.engine.decision import (
    Check,
    EngineAction,
    EngineDecision,
    from_json,
    replay,
)
from ironcurtain_proxy.auto_confirm.engine.evaluation import CHECKS
from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction
from ironcurtain_proxy.auto_confirm.engine.lifecycle import InteractionState
from ironcurtain_proxy.auto_confirm.engine.matrix import MatrixWord
from ironcurtain_proxy.auto_confirm.engine.settings import RuleAction, SafetyRule, UnknownAction
from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.json import Json
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import CALM, ON, decided

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


@pytest.mark.requirement("X-6")
def test_a_denial_cannot_be_read_back() -> None:
    record = DECISIONS[0].as_json()
    for action in ("deny", "denied", "APPROVE", "", None, True, 1):
        with pytest.raises(KernelError):
            from_json({**record, "action": action})


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.requirement("B-89", "B-104", "B-168")
def test_a_decision_is_read_back_as_it_was(decision: EngineDecision) -> None:
    record = decision.as_json()
    assert from_json(record) == decision
    assert replay(record) == decision
    assert (record.get("auto") is True) == decision.approves
    assert {"action", "reason", "target"} <= set(record)
    assert (record["target"] is None) == decision.approves


def test_the_examples_cover_every_action() -> None:
    assert {decision.action for decision in DECISIONS} == set(get_args(EngineAction))


def test_the_record_has_every_field_of_the_decision() -> None:
    assert len(DECISIONS[3].as_json()) == len(fields(EngineDecision))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("risk", 0.31), ("risk", 0.0), ("band", "SAFE"), ("action", "approve"), ("alert", True),
        ("target", None), ("priority", None), ("confidence", 0.9), ("auto", True),
        ("safeguards", ["sandbox"]), ("safeguards", ["rollback"]), ("note", "x"), ("factors", []),
    ],
)  # fmt: skip
def test_a_record_that_contradicts_itself_is_not_replayed(key: str, value: Json) -> None:
    record = decided(calls.fetch()).as_json()
    with pytest.raises(KernelError):
        replay({**record, key: value})


def test_neither_a_high_risk_nor_a_rule_can_be_replayed_as_approved() -> None:
    clear: dict[str, Json] = {"action": "approve", "auto": True}
    clear |= {"target": None, "fallback": None, "priority": None, "alert": False}
    risky = decided(replace(calls.fetch("prod.example.org"), arguments={"method": "purge"}))
    assert (risky.risk, risky.verdict) == (75, "evaluate")
    ruled = decided(calls.fetch(), replace(ON, safety_rules=(RULE,)))
    assert (ruled.risk, ruled.verdict) == (55, "escalate")
    for decision in (risky, ruled):
        with pytest.raises(KernelError, match="action"):
            replay({**decision.as_json(), **clear})


@pytest.mark.parametrize("name", [decision.check for decision in DECISIONS])
def test_a_high_risk_cannot_be_replayed_as_approved(name: str) -> None:
    forged = {**DECISIONS[4].as_json(), "action": "approve", "target": None, "auto": True}
    with pytest.raises(KernelError, match="action"):
        replay({**forged, "priority": None, "fallback": None, "check": name})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("risk", float("nan")), ("risk", 2), ("risk", -0.1), ("risk", "0.3"), ("risk", True),
        ("priority", 7), ("priority", True), ("priority", 9.0), ("factors", "x"),
        ("factors", [1]), ("factors", [{"name": 1, "contribution": 0.1}]), ("reason", None),
        ("rows", [1]), ("rows", None), ("operation", "rm"), ("check", "x"), ("band", 1),
    ],
)  # fmt: skip
def test_what_is_no_record_is_not_read(key: str, value: Json) -> None:
    with pytest.raises(KernelError):
        from_json({**DECISIONS[3].as_json(), key: value})


def test_every_check_has_its_word() -> None:
    assert tuple(name for name, _ in CHECKS) == get_args(Check)[:-1]


@pytest.mark.requirement("B-46", "B-47", "B-58", "B-119")
def test_a_decision_says_who_decided_and_the_states_are_the_document_s() -> None:
    assert DECISIONS[0].decided_by == "engine:safety-rule"
    documented = {"pending", "approved", "rejected", "auto_approved", "held", "escalated"}
    assert documented | {"timed_out"} == set(get_args(InteractionState))


def test_the_same_input_gives_the_same_decision() -> None:
    interaction: Interaction = calls.fetch()
    assert decided(interaction) == decided(replace(interaction))
    assert module.replay(decided(interaction).as_json()) == decided(interaction)
