"""A reviewer that is a model: it gets a prompt and answers with one JSON object.

`llm.litellm_model` calls the model. The agent's words are shown redacted, cut and fenced. After an
answer of any other form, the next reviewer is asked.
"""

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio
from msgspec import Struct

from ironcurtain_proxy.auto_confirm.briefing import (
    MAX_NAME,
    PassedOn,
    Redact,
    View,
    unless_cut,
    view_of,
)
from ironcurtain_proxy.auto_confirm.engine.evaluation import UNDECIDED, EngineDecision
from ironcurtain_proxy.auto_confirm.reviewers.json_lines import ReviewQueue, read_object
from ironcurtain_proxy.llm.litellm_model import Completion, LlmLog, Model, usage_of, warm_within
from ironcurtain_proxy.mailbox.messages import clean_line
from ironcurtain_proxy.model.decision import TIMEOUT, Program
from ironcurtain_proxy.model.escalation import (
    Approved,
    Declined,
    Escalation,
    Ruling,
    as_json,
    cut,
    visible,
)
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import Clock

_log: Final = logging.getLogger(__name__)

PROMPT_VERSION: Final = "2"
"""The version of the prompt, for the log."""

_TEXTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SYSTEM_PROMPT: Final[str] = _TEXTS["system_prompt"]
ANSWER_SCHEMA: Final[Mapping[str, Json]] = _TEXTS["answer_schema"]

ModelWord: TypeAlias = Literal["approve", "deny", "pass"]
_WORDS: Final[Mapping[object, ModelWord]] = {"approve": "approve", "deny": "deny", "pass": "pass"}
_MAX_ANSWER: Final = 16_384
_MAX_REASON: Final = 500
_EXPIRED: Final = Declined(by=TIMEOUT, kind="expired")


class ModelAnswer(Struct, frozen=True):
    """The decision of a model."""

    decision: ModelWord
    reason: str


def read_answer(text: str | None) -> ModelAnswer | None:
    """Read a model's answer, or None if its form is wrong."""
    if text is None or len(text) > _MAX_ANSWER:
        return None
    fields = read_object(text.encode("utf-8", "replace"))
    if fields is None or fields.keys() != {"decision", "reason"}:
        return None
    decision, reason = fields["decision"], fields["reason"]
    word = _WORDS.get(decision) if isinstance(decision, str) else None
    if word is None or not isinstance(reason, str):
        return None
    return ModelAnswer(word, clean_line(reason.encode("utf-8", "replace").decode())[:_MAX_REASON])


def review_prompt(escalation: Escalation, decision: EngineDecision, view: View) -> str:
    """Return the prompt. Only its fenced lines hold words of the agent."""
    # The id was made after the arguments, so that they cannot end the fence. And every
    # line break in them is an escape by now.
    fence = f"===== written by the agent {escalation.id} ====="
    factors = ", ".join([f"{name} {value:+d}%" for name, value in decision.factors]) or "none"
    lines = [
        f"Tool: {visible(escalation.server)}/{cut(escalation.tool, MAX_NAME)}",
        f"Operation: {decision.operation}",
        f"Risk: {decision.risk}% ({factors})",
        f"Confidence: {decision.confidence}%",
        f"Priority: {decision.urgency}",
        f"What asks for the review: {', '.join(escalation.origins)}",
        f"Arguments are shown completely: {'yes' if view.complete else 'NO'}",
        fence,
        # Reasons of a policy may quote the call.
        *[f"Why a review is needed: {reason}" for reason in view.reasons],
        f"Scope: {view.scope}",
        *[f"{name}: {text}" for name, text in view.context.items()],
        *[f"Argument {name} = {as_json(value)}" for name, value in view.arguments.items()],
        fence,
        "Decision:",
    ]
    return "\n".join(lines)


@dataclass(slots=True, kw_only=True)
class ModelReviewer:
    """Asks a model. A `Reviewer`."""

    name: str
    model: Model
    clock: Clock
    redact: Redact
    deadline_seconds: float = 60.0
    """Seconds for one answer. The import of the model's library has its own deadline."""
    at_once: int = 4
    log: LlmLog | None = None
    _queue: ReviewQueue = field(init=False)

    def __post_init__(self) -> None:
        """Set up the queue."""
        self._queue = ReviewQueue(self.at_once)

    def is_reachable(self) -> bool:
        """Return True: whether a model is reachable shows only when it is asked."""
        return True

    async def warm(self) -> None:
        """Load the library ahead of the first question. Never raises but when cancelled."""
        try:
            await self.model.warm()
        except Exception as error:  # noqa: BLE001  a client library raises whatever it likes
            _log.warning(
                "the model of reviewer %s cannot be loaded: %s", self.name, type(error).__name__
            )

    async def aclose(self) -> None:
        """Close the model's connections."""
        await self.model.aclose()

    async def ask(self, escalation: Escalation, decision: EngineDecision = UNDECIDED) -> Ruling:
        """Ask the reviewer, and wait at most until the escalation's deadline."""
        try:
            view = view_of(escalation, decision, self.redact)
            prompt = review_prompt(escalation, decision, view)
        except Exception:  # noqa: BLE001  what cannot be shown is not reviewed
            _log.warning("a call cannot be shown to reviewer %s", self.name)
            return PassedOn("the call cannot be shown", asked=False)
        seconds = (escalation.deadline - self.clock.steady()).total_seconds()
        ruling: Ruling = _EXPIRED
        with anyio.move_on_after(max(seconds, 0.0)):
            async with self._queue.turn(decision.urgency, escalation.created):
                await warm_within(self.model, seconds)
                ruling = await self._consult(prompt)
        if self.clock.steady() > escalation.deadline:
            # The machine was suspended past the deadline.
            return _EXPIRED
        return unless_cut(ruling, view)

    async def _consult(self, prompt: str) -> Ruling:
        started = self.clock.monotonic()
        completion: Completion | None = None
        outage = "no answer in time"
        with anyio.move_on_after(self.deadline_seconds):
            try:
                completion = await self.model.complete(SYSTEM_PROMPT, prompt)
            except Exception as error:  # noqa: BLE001  as above
                # Its message may quote the question.
                outage = type(error).__name__
        answer = None if completion is None else read_answer(completion.text)
        if self.log is not None:
            entry = self._entry(prompt, completion, answer, self.clock.monotonic() - started)
            await self.log.append(entry)
        if completion is None:
            _log.warning("the model of reviewer %s could not be asked: %s", self.name, outage)
            return PassedOn(f"its model could not be asked: {outage}", asked=False)
        return (
            PassedOn("its model gave no answer that counts") if answer is None else self._of(answer)
        )

    def _of(self, answer: ModelAnswer) -> Ruling:
        by = Program(self.name, "model")
        match answer.decision:
            case "approve":
                return Approved(by=by, reasoning=answer.reason)
            case "deny":
                return Declined(by=by, kind="denied", reason=answer.reason, note=answer.reason)
            case "pass":
                return PassedOn("its model passed")

    def _entry(
        self, prompt: str, completion: Completion | None, answer: ModelAnswer | None, seconds: float
    ) -> dict[str, Json]:
        return {
            "step": "review",
            "timestamp": self.clock.now().isoformat(),
            "reviewer": self.name,
            "promptVersion": PROMPT_VERSION,
            "prompt": prompt,
            "response": None if completion is None else completion.text,
            "decision": None if answer is None else answer.decision,
            "reason": None if answer is None else answer.reason,
            "usage": None if completion is None else usage_of(completion),
            "durationMs": round(seconds * 1000),
        }
