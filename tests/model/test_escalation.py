"""Which candidate an approval names: one that was offered, and nothing that only resembles one."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.case import Settlement
from ironcurtain_proxy.model.decision import HUMAN, KERNEL, Allow, Escalate, Ground
from ironcurtain_proxy.model.escalation import cut
from ironcurtain_proxy.model.grant import Candidate
from ironcurtain_proxy.model.reply import Allowed
from tests.model.test_case import a_case
from tests.questions import ETC, a_question

SRV = replace(ETC, description="Allow files/read_file read-path within /srv")
QUESTION = replace(a_question(), candidates=(ETC, SRV))


@pytest.mark.parametrize("remember", [SRV, replace(SRV), 1])
def test_an_offered_candidate_or_its_place_is_remembered(remember: Candidate | int) -> None:
    assert QUESTION.chosen(remember) == SRV


@pytest.mark.parametrize(
    "remember",
    [
        None,
        True,
        False,
        2,
        -1,
        1.0,
        "1",
        Candidate(description=SRV.description),
        replace(SRV, server="shell"),
    ],
)
def test_nothing_else_is_remembered(remember: object) -> None:
    assert QUESTION.chosen(remember) is None  # type: ignore[arg-type]  # of a program without types


def test_what_lets_a_call_go_is_the_policy_or_who_approved_it() -> None:
    case = a_case(Allow(Ground("workspace", "inside")))
    assert case.allowed == Allowed("workspace", KERNEL)
    case = a_case(Escalate(Ground("outside", "outside")))
    case.settlement = Settlement(effect="allow", reason="yes", decided_by=HUMAN, result="approved")
    assert case.allowed == Allowed("outside", HUMAN)


def test_a_question_says_first_what_leaves_or_is_lost_and_else_which_rule_asks() -> None:
    assert QUESTION.why == QUESTION.ground.reason
    assert (
        replace(QUESTION, told=("Pushes main to origin", "Reads x")).why == "Pushes main to origin"
    )


def test_a_long_text_loses_its_middle_and_says_how_much_and_hides_nothing() -> None:
    assert cut("a\u200bb", 3) == "a\\u200bb"
    assert cut("begin" + "x" * 90 + "\u200bend", 9) == (
        "begi [… 90 CHARACTERS ARE NOT SHOWN …] x\\u200bend"
    )
