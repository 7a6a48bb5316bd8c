"""What the agent is told."""

from typing import get_args

import pytest

from ironcurtain_proxy.agent.replies import NOT_RECORDED_NOTE, REFUSALS, result_of
from ironcurtain_proxy.model.decision import AUTO_APPROVER, Decider, Ground, Program
from ironcurtain_proxy.model.reply import Answered, Failed, Refused, RefusedBy
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json


def texts(result: dict[str, Json]) -> list[str]:
    content = result["content"]
    assert isinstance(content, list)
    return [str(block["text"]) for block in content if isinstance(block, dict)]


def refused(by: RefusedBy, rule: str = "a-rule", reason: str = "a reason") -> dict[str, Json]:
    return result_of(Refused(by=by, ground=Ground(rule, reason)), "fs__read")


@pytest.mark.requirement("C-5", "E-27")
def test_an_escalation_without_anyone_to_ask_has_the_two_known_blocks() -> None:
    first, second = texts(refused("no-reviewer"))
    assert first == ("tool 'fs__read' execution denied: no approval channel available")
    assert second.startswith(
        "ESCALATION REQUIRED: a reason. Action denied (no escalation handler)."
    )
    assert "a-rule" in second


def test_without_a_reviewer_the_agent_tells_its_user_who_can_change_that() -> None:
    _, second = texts(refused("no-reviewer"))
    assert "nobody is reviewing" in second
    assert "the operator of this proxy can open the reviewer's screen" in second
    assert "configuration" not in second


@pytest.mark.requirement("E-26")
def test_a_person_s_refusal_has_the_known_words_and_the_person_s_own() -> None:
    ground = Ground("a-rule", "a reason")
    first, second = texts(
        result_of(Refused(by="declined", ground=ground, note="use b"), "fs__read")
    )
    assert first == "tool 'fs__read' execution denied: user did not approve the action"
    assert 'The reviewer says: "use b".' in second


@pytest.mark.parametrize(
    ("decider", "who"),
    [
        (Program("night-shift", "session"), "the reviewer night-shift did not approve the action"),
        (Program("second-look", "model"), "the model second-look did not approve the action"),
        (AUTO_APPROVER, "the auto-approver did not approve the action"),
    ],
)
def test_what_refused_is_not_called_the_user_when_it_is_none(decider: Decider, who: str) -> None:
    reply = Refused(by="declined", ground=Ground("a-rule", "a reason"), decider=decider)
    assert texts(result_of(reply, "fs__read"))[0] == f"tool 'fs__read' execution denied: {who}"


def test_a_question_that_nobody_answered_was_not_refused_by_the_user() -> None:
    first = texts(refused("expired"))[0]
    assert first == "tool 'fs__read' execution denied: nobody answered in time"


def test_a_reviewer_s_name_cannot_hide_words_in_a_reply() -> None:
    decider = Program("a\u202e\nDENIED", "named")
    reply = Refused(by="declined", ground=Ground("a-rule", "a reason"), decider=decider)
    assert texts(result_of(reply, "fs__read"))[0].isprintable()


@pytest.mark.requirement("C-20")
def test_a_denial_says_why_by_which_rule_and_that_it_is_final() -> None:
    first, second = texts(refused("policy"))
    assert first == "DENIED: a reason"
    assert "a-rule" in second
    assert "final" in second


@pytest.mark.parametrize("by", get_args(RefusedBy))
def test_every_refusal_is_an_error_result_with_its_reason(by: RefusedBy) -> None:
    result = refused(by)
    assert result["isError"] is True
    assert any("a reason" in text for text in texts(result))


def test_every_word_of_refusal_has_its_blocks() -> None:
    assert set(REFUSALS) == set(get_args(RefusedBy))


def test_braces_in_a_reason_are_only_text() -> None:
    assert (
        texts(refused("policy", reason="{name.__class__} {0}"))[0] == "DENIED: {name.__class__} {0}"
    )


def test_a_missing_working_directory_reads_as_the_original_said_it() -> None:
    assert texts(refused("arguments", "git-path-enrichment-failed", "Git server has no")) == [
        "Error: Git server has no"
    ]


def test_an_answer_passes_untouched() -> None:
    answer: dict[str, Json] = {"content": [], "structuredContent": {"v": 1}, "x-unknown": 7}
    assert result_of(Answered(result=ToolResult(result=answer)), "t") == answer


def test_an_answer_that_could_not_be_recorded_says_so_behind_its_content() -> None:
    answer: dict[str, Json] = {"content": [{"type": "text", "text": "done"}], "x": 1}
    result = result_of(Answered(result=ToolResult(result=answer), recorded=False), "t")
    assert texts(result) == ["done", NOT_RECORDED_NOTE]
    assert result["x"] == 1
    assert answer["content"] == [{"type": "text", "text": "done"}]


def test_a_failed_call_is_an_error_result() -> None:
    assert texts(result_of(Failed(message="it crashed"), "t")) == ["Error: it crashed"]
    assert len(texts(result_of(Failed(message="it crashed", recorded=False), "t"))) == 2
