"""What the model is asked, and which of its answers count."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from ironcurtain_proxy.auto_approver.intent import (
    ANSWER_SCHEMA,
    INVALID,
    SYSTEM_PROMPT,
    AutoApproveContext,
    AutoApproveResult,
    failed,
    read_answer,
    user_prompt,
)

CONTEXT = AutoApproveContext(
    user_message="push my changes to origin",
    tool_name="git/git_push",
    escalation_reason="Sending needs approval",
)


@pytest.mark.requirement("A-43", "A-25")
def test_the_question_has_the_lines_of_the_document() -> None:
    assert user_prompt(CONTEXT).split("\n") == [
        'Human\'s most recent message: "push my changes to origin"',
        "",
        "Escalated tool: git/git_push",
        "Reason for escalation: Sending needs approval",
        "",
        "Decision:",
    ]
    given = [one.name for one in fields(AutoApproveContext)]
    assert given == ["user_message", "tool_name", "escalation_reason"]
    for name in given:
        with pytest.raises(AttributeError):
            setattr(CONTEXT, name, "x")


@pytest.mark.requirement("A-23", "A-15")
@given(st.text())
def test_the_message_stands_in_the_question_byte_for_byte(message: str) -> None:
    context = AutoApproveContext(user_message=message, tool_name="a/b", escalation_reason="c")
    before, after = "Human's most recent message: \"", '"\n\nEscalated tool: a/b\n'
    assert user_prompt(context).startswith(before + message + after)


RULES = {
    "A-34": ("security-critical intent matcher for a software tool authorization system",),
    "A-35": ("explicit, specific request", "maps directly"),
    "A-36": ("ANY ambiguity, vagueness or indirect",),
    "A-37": ("SPECIFIC action, not merely for a general category",),
    "A-38": ('"go ahead"', '"continue"', '"do what you need to"', '"fix it"', "NEVER"),
    "A-39": ("must mention the specific operation or its clear equivalent",),
    "A-40": ("push my changes to origin", "~/Documents/notes.txt", "temp files in /var/log"),
    "A-41": ("fix the failing tests", "go ahead and continue", "clean up", "commit my changes"),
    "A-42": ('"decision" is "approve" or "escalate"', "one short sentence"),
}


@pytest.mark.requirement(*RULES)
@pytest.mark.parametrize("phrases", RULES.values(), ids=RULES.keys())
def test_the_model_is_told_every_rule_and_example(phrases: tuple[str, ...]) -> None:
    assert [phrase for phrase in phrases if phrase not in SYSTEM_PROMPT] == []


@pytest.mark.requirement("A-8", "A-24", "A-42")
def test_the_schema_knows_two_words_and_nothing_else() -> None:
    properties = ANSWER_SCHEMA["properties"]
    assert isinstance(properties, dict)
    assert properties["decision"] == {"type": "string", "enum": ["approve", "escalate"]}
    assert list(properties) == ["decision", "reasoning"]
    assert ANSWER_SCHEMA["additionalProperties"] is False


@pytest.mark.requirement("A-42", "A-77", "A-78")
@given(
    st.sampled_from(["approve", "escalate"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.booleans(),
)
def test_an_exact_answer_is_read_whatever_its_reasoning(
    decision: str, reasoning: str, indented: bool
) -> None:
    option = orjson.OPT_INDENT_2 if indented else 0
    text = orjson.dumps({"decision": decision, "reasoning": reasoning}, option=option).decode()
    read = read_answer(text)
    assert (read.decision, read.reasoning) == (decision, reasoning)


NO_ANSWERS = {
    "nothing": None,
    "empty": "",
    "prose": "approve",
    "deny": '{"decision":"deny","reasoning":"r"}',
    "a word in capitals": '{"decision":"APPROVE","reasoning":"r"}',
    "an escaped word": '{"decision":"\\u0061pprove","reasoning":"r"}',
    "no reasoning": '{"decision":"approve"}',
    "no decision": '{"reasoning":"approve"}',
    "reasoning that is no string": '{"decision":"approve","reasoning":1}',
    "a decision that is no string": '{"decision":["approve"],"reasoning":"r"}',
    "one member too many": '{"decision":"approve","reasoning":"r","confidence":1}',
    "the decision twice": '{"decision":"escalate","decision":"approve","reasoning":"r"}',
    "the reasoning twice": '{"decision":"approve","reasoning":"r","reasoning":"s"}',
    "a list": '[{"decision":"approve","reasoning":"r"}]',
    "two objects": '{"decision":"approve","reasoning":"r"}{"decision":"escalate","reasoning":"r"}',
    "prose around it": 'Sure: {"decision":"approve","reasoning":"r"}',
    "a code fence": '```json\n{"decision":"approve","reasoning":"r"}\n```',
    "cut off": '{"decision":"approve","reasoning":"r',
    "single quotes": "{'decision':'approve','reasoning':'r'}",
    "a trailing comma": '{"decision":"approve","reasoning":"r",}',
    "a newline in a string": '{"decision":"approve","reasoning":"a\nb"}',
    "a bad escape": '{"decision":"approve","reasoning":"\\x41"}',
    "a byte order mark": '\ufeff{"decision":"approve","reasoning":"r"}',
    "a nested answer": '{"answer":{"decision":"approve","reasoning":"r"}}',
    "too long": '{"decision":"approve","reasoning":"' + "x" * 20_000 + '"}',
}


@pytest.mark.requirement("A-69", "A-75", "A-80")
def test_anything_else_escalates() -> None:
    assert [
        text
        for text in NO_ANSWERS.values()
        if read_answer(text) != AutoApproveResult(decision="escalate", reasoning=INVALID)
    ] == []


@given(st.text(max_size=300))
def test_no_text_is_taken_for_an_approval_that_a_parser_would_not_read_as_one(text: str) -> None:
    if read_answer(text).decision == "approve":
        assert orjson.loads(text)["decision"] == "approve"


@pytest.mark.requirement("A-76", "A-70", "A-75")
def test_faults_have_the_words_of_the_document() -> None:
    assert failed("boom").reasoning == "Auto-approver error: boom; escalating to human"
    assert INVALID == "Auto-approver returned invalid response; escalating to human"


def test_a_half_character_that_no_log_can_hold_is_no_answer() -> None:
    assert read_answer('{"decision":"approve","reasoning":"\\ud800"}').reasoning == INVALID
