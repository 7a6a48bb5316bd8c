"""What the record says of who settled an escalation."""

import pytest

from ironcurtain_proxy.approval.settlements import by_refusal, by_reviewer
from ironcurtain_proxy.model.escalation import BY_MODEL, Approved, Declined, EscalationId

ASKED, JOINED = EscalationId("asked"), EscalationId("joined")


@pytest.mark.requirement("B-66")
@pytest.mark.parametrize(
    ("by", "who"),
    [
        ("human", "human"),
        ("reviewer:night-shift", 'reviewer "night-shift"'),
        ("auto-approver-of-others", "auto-approver-of-others"),
        ("timeout", "nobody"),
        ("kernel", "the proxy"),
    ],
)
def test_the_record_says_whether_a_person_or_a_reviewer_decided(by: str, who: str) -> None:
    approved = by_reviewer(Approved(by=by), ASKED)
    assert approved.reason == f"Approved by {who} during escalation"
    denied = by_refusal(Declined(by=by, kind="denied"), ASKED)
    assert denied.reason == f"Denied by {who} during escalation"


def test_the_record_names_the_question_that_was_answered() -> None:
    assert ("escalationId", ASKED) in by_reviewer(Approved(by="human"), ASKED).extra
    joined = by_reviewer(Approved(by="human", question=JOINED), ASKED)
    assert ("escalationId", JOINED) in joined.extra
    denied = by_refusal(Declined(by="human", kind="denied", question=JOINED), ASKED)
    assert ("escalationId", JOINED) in denied.extra


def test_the_record_says_that_a_reviewer_is_a_language_model() -> None:
    declined = Declined(by="reviewer:second-look", kind="denied", details=(BY_MODEL,))
    settlement = by_refusal(declined, ASKED)
    assert settlement.reason == 'Denied by model "second-look" during escalation'
    assert settlement.decided_by == "reviewer:second-look"
    assert BY_MODEL in settlement.extra
    approved = by_reviewer(Approved(by="reviewer:second-look", details=(BY_MODEL,)), ASKED)
    assert approved.reason == 'Approved by model "second-look" during escalation'
