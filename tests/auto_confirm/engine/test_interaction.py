"""What the engine is asked with, and that each of it counts."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.extraction import subject_of
from ironcurtain_proxy.auto_confirm.engine.interaction import (
    ApproveRate,
    Interaction,
    Knowledge,
    WorkContext,
    context_score,
)
from ironcurtain_proxy.auto_confirm.engine.risk import NO_ROW
from ironcurtain_proxy.auto_confirm.engine.settings import SafetyRule
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import CALM, ON, WORKSPACE, decided

pytestmark = pytest.mark.requirement("B-90")

EDIT = calls.edit("/srv/project/a")
OPEN = replace(ON, safety_rules=(SafetyRule(pattern="file_edit_in_project", action="conditional"),))
"""Edits in the project are looked at, so that everything else about them counts."""

HERE = WorkContext(directory=WORKSPACE, branch="feature/x")
KNOWN = calls.pattern("edit", "/srv/project/.*", auto_approve=False)
OFTEN = {("edit", "/srv/project/a"): ApproveRate(approved=10, decided=10)}

Seen = tuple[object, object]
INPUTS: dict[str, tuple[Interaction, Knowledge, Callable[[EngineDecision], object], Seen]] = {
    "operation": (calls.delete(), CALM, lambda found: found.operation, ("edit", "delete")),
    "scope": (calls.edit("/srv/other/a"), CALM, lambda found: found.risk, (30, 60)),
    "session": (
        replace(EDIT, session="architect_manager"),
        CALM,
        lambda found: found.target,
        ("architect_manager", "claude_code_high_level"),
    ),
    "context": (
        replace(EDIT, context=context_score(required=HERE, actual=HERE)),
        CALM,
        lambda found: (found.context_score, found.action),
        ((0, "escalate"), (100, "approve")),
    ),
    "pattern": (EDIT, replace(CALM, patterns=(KNOWN,)), lambda found: found.confidence, (50, 70)),
    "approve_rate": (
        EDIT,
        replace(CALM, approve_rates=OFTEN),
        lambda found: found.confidence,
        (50, 70),
    ),
    "context_similarity": (
        EDIT,
        replace(CALM, context_similarity=69),
        lambda found: found.confidence,
        (50, 35),
    ),
    "risk": (
        replace(EDIT, arguments={"target": "production"}),
        CALM,
        lambda found: found.risk,
        (30, 40),
    ),
}


@pytest.mark.parametrize(
    ("interaction", "knowledge", "look", "seen"), INPUTS.values(), ids=list(INPUTS)
)
def test_each_input_changes_what_is_decided(
    interaction: Interaction,
    knowledge: Knowledge,
    look: Callable[[EngineDecision], object],
    seen: Seen,
) -> None:
    before, after = decided(EDIT, OPEN, CALM), decided(interaction, OPEN, knowledge)
    assert (look(before), look(after)) == seen


def test_the_id_names_an_interaction_and_decides_nothing() -> None:
    assert "id" in Interaction.__struct_fields__
    assert decided(replace(EDIT, id="8")) == decided(EDIT)


def test_operation_and_scope_are_found_in_the_call_and_not_taken_from_its_words() -> None:
    claimed = replace(EDIT, arguments={**EDIT.arguments, "operation": "read", "scope": "/tmp"})
    subject = subject_of(claimed)
    assert (subject.operation, subject.scope) == ("edit", "/srv/project/a")


def test_a_risk_of_which_no_row_speaks_counts_as_one_half() -> None:
    assert NO_ROW == 50
    assert decided(calls.strange("/srv/project/a")).risk == 50
