"""The question to the model, and the reading of its answer.

This file knows the words of the auto-approver: what the model is told, what it is asked, and which
answers count. It does not know which model it is, nor the call's arguments: they are kept out, so
that a file name or a text in them cannot talk to the model.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.auto_approver.vocabulary import PROMPT
from ironcurtain_proxy.model.values import Json, object_of
from ironcurtain_proxy.strict_json import strict_json

AutoApproveDecision: TypeAlias = Literal["approve", "escalate"]
"""`approve`: the user's message clearly asks for this. `escalate`: anything else; someone is asked.
There is no third word: the auto-approver cannot deny."""

INVALID: Final = "Auto-approver returned invalid response; escalating to human"
NO_MESSAGE: Final = "No message of the user; escalating to human"

SYSTEM_PROMPT: Final[str] = PROMPT["system_prompt"]
WITH_CONFIDENCE: Final[str] = PROMPT["with_confidence"]
ANSWER_SCHEMA: Final[Mapping[str, Json]] = PROMPT["answer_schema"]
_PROPERTIES: Final[Mapping[str, Json]] = PROMPT["answer_schema"]["properties"]


def answer_schema(*, confidence: bool) -> Mapping[str, Json]:
    """Return the form of an answer, where a threshold is set with the confidence in it."""
    if not confidence:
        return ANSWER_SCHEMA
    sure: Json = {"type": "number", "minimum": 0, "maximum": 1}
    return {
        **ANSWER_SCHEMA,
        "properties": {**_PROPERTIES, "confidence": sure},
        "required": [*_PROPERTIES, "confidence"],
    }


class AutoApproveContext(Struct, frozen=True, kw_only=True):
    """The data about a call that the model sees."""

    user_message: str
    """The user's most recent message, byte for byte."""
    tool_name: str
    """`server/tool`."""
    escalation_reason: str
    """The policy's reason."""


class AutoApproveResult(Struct, frozen=True, kw_only=True):
    """The result of asking the model."""

    decision: AutoApproveDecision
    reasoning: str
    """The model's reasoning, for the record and for diagnosis; no decision depends on it."""
    confidence: float | None = None
    """The model's confidence from 0 to 1. `None` means the model named none."""


def user_prompt(context: AutoApproveContext) -> str:
    """Return the question. The message stands in it as the user wrote it."""
    return (
        f'Human\'s most recent message: "{context.user_message}"\n\n'
        f"Escalated tool: {context.tool_name}\n"
        f"Reason for escalation: {context.escalation_reason}\n\n"
        "Decision:"
    )


def invalid() -> AutoApproveResult:
    """Return the result for an answer that is not in the required form."""
    return AutoApproveResult(decision="escalate", reasoning=INVALID)


def failed(message: str) -> AutoApproveResult:
    """Return the result where the model could not be asked."""
    return AutoApproveResult(
        decision="escalate", reasoning=f"Auto-approver error: {message}; escalating to human"
    )


MAX_ANSWER: Final = 16_384
"""Characters; a sentence and a word are far less."""


def read_answer(text: str | None, *, confidence: bool = False) -> AutoApproveResult:
    """Read a model's answer. Whatever is not exactly an answer escalates.

    Args:
        text: the answer.
        confidence: the model was asked how sure it is.
    """
    try:
        # A usual parser would take the last of two decisions.
        found = object_of(strict_json((text or "")[: MAX_ANSWER + 1].encode()))
    except ValueError:
        found = {}
    decision, reasoning, sure = map(found.get, ("decision", "reasoning", "confidence"))
    is_sure = type(sure) in {int, float} and 0 <= float(str(sure)) <= 1
    if (
        len(text or "") > MAX_ANSWER
        or found.keys() != {*_PROPERTIES, *(["confidence"] if confidence else [])}
        or not isinstance(reasoning, str)
        or is_sure != confidence
        # Spelled out: an escaped word hides from whoever reads the log.
        or f'"{decision}"' not in (text or "")
    ):
        return invalid()
    match decision:
        case "approve" | "escalate":
            number = float(str(sure)) if confidence else None
            return AutoApproveResult(decision=decision, reasoning=reasoning, confidence=number)
        case _:
            return invalid()
