"""What the record says of who settled an escalation."""

import pytest

from ironcurtain_proxy.model.case import by_containment, by_refusal, by_reviewer, refused_by
from ironcurtain_proxy.model.decision import (
    CONTAINMENT,
    HUMAN,
    KERNEL,
    TIMEOUT,
    Decider,
    Program,
    in_record,
)
from ironcurtain_proxy.model.escalation import Approved, Declined, EscalationId

ASKED, JOINED = EscalationId("asked"), EscalationId("joined")


@pytest.mark.requirement("B-66")
@pytest.mark.parametrize(
    ("by", "who"),
    [
        (HUMAN, "human"),
        (Program("night-shift", "session"), 'reviewer "night-shift"'),
        (Program("engine:risk", "named"), 'reviewer "engine:risk"'),
        (Program("kernel", "process"), 'reviewer "kernel"'),
    ],
)
def test_the_record_says_whether_a_person_or_a_reviewer_decided(by: Decider, who: str) -> None:
    approved = by_reviewer(Approved(by=by), ASKED)
    assert approved.reason == f"Approved by {who} during escalation"
    denied = by_refusal(Declined(by=by, kind="denied"), ASKED)
    assert denied.reason == f"Denied by {who} during escalation"


def test_the_record_names_the_question_that_was_answered() -> None:
    assert ("escalationId", ASKED) in by_reviewer(Approved(by=HUMAN), ASKED).extra
    joined = by_reviewer(Approved(by=HUMAN, question=JOINED), ASKED)
    assert ("escalationId", JOINED) in joined.extra
    denied = by_refusal(Declined(by=HUMAN, kind="denied", question=JOINED), ASKED)
    assert ("escalationId", JOINED) in denied.extra


def test_the_record_says_that_a_reviewer_is_a_language_model() -> None:
    declined = Declined(by=Program("second-look", "model"), kind="denied")
    settlement = by_refusal(declined, ASKED)
    assert settlement.reason == 'Denied by model "second-look" during escalation'
    assert in_record(settlement.decided_by) == "reviewer:second-look"
    assert ("reviewerKind", "model") in settlement.extra
    approved = by_reviewer(Approved(by=Program("second-look", "model")), ASKED)
    assert approved.reason == 'Approved by model "second-look" during escalation'


@pytest.mark.parametrize(
    ("by", "who"),
    [(KERNEL, "the proxy"), (TIMEOUT, "nobody"), (CONTAINMENT, in_record(CONTAINMENT))],
)
def test_a_refusal_by_no_reviewer_says_so(by: Decider, who: str) -> None:
    denied = by_refusal(Declined(by=by, kind="denied"), ASKED)
    assert denied.reason == f"Denied by {who} during escalation"


def test_the_record_has_the_reasoning_of_an_approval_that_is_no_note() -> None:
    approved = by_reviewer(Approved(by=HUMAN, reasoning="it is harmless"), ASKED)
    assert ("reasoning", "it is harmless") in approved.extra


def test_what_is_contained_is_approved_by_containment() -> None:
    settled = by_containment()
    assert (settled.effect, settled.decided_by, settled.result) == (
        "allow",
        CONTAINMENT,
        "approved",
    )


def test_a_limit_on_questions_is_told_as_one() -> None:
    assert refused_by(Declined(by=KERNEL, kind="limit")) == "limit"
