"""The auto-approver: answers an escalation where the user's own words already did.

It approves or passes on; it has no way to deny, and everything that goes wrong passes on. This file
knows the order of the questions. The words are in `auto_approver.intent`, the objections in
`auto_approver.target_check`, the model in `llm.litellm_model`.
"""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final, Protocol, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.intent import (
    NO_MESSAGE,
    SYSTEM_PROMPT,
    WITH_CONFIDENCE,
    AutoApproveContext,
    AutoApproveResult,
    answer_schema,
    failed,
    read_answer,
    user_prompt,
)
from ironcurtain_proxy.auto_approver.target_call import CallSurroundings
from ironcurtain_proxy.auto_approver.target_check import (
    commits_and_pushes,
    is_plain,
    operations_of,
    veto,
)
from ironcurtain_proxy.llm.litellm_model import (
    DEFAULT_MODEL,
    Completion,
    LitellmModel,
    LlmLog,
    Model,
    parse_model_id,
    usage_of,
    warm_within,
)
from ironcurtain_proxy.mailbox.session_state import MessageSource, UserMessage
from ironcurtain_proxy.model.decision import AUTO_APPROVER
from ironcurtain_proxy.model.escalation import (
    Approved,
    Declined,
    Escalation,
    Ruling,
    Unpublished,
    Unreachable,
)
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import Clock

# --- limits ---------------------------------------------------------------------------------------
# Limits on the LLM approver: what switches it off, or excludes it from one question.
#
# Knows counts and times, nothing of models, messages or files. Lives as long as a session.


_K = TypeVar("_K")
_V = TypeVar("_V")


_MINUTE: Final = 60.0
_JUST_SECONDS: Final = 300.0
"""The least time for which a person's denial keeps the auto-approver from the same call."""
_MOST_REMEMBERED: Final = 4096


@dataclass(slots=True, kw_only=True)
class Breakers:
    """The limits in one session."""

    outages: int
    """Failures in a row after which the model is not asked again."""
    approvals_per_minute: int
    off_because: str | None = field(default=None, init=False)
    _outages: int = field(default=0, init=False)
    _approved_at: deque[float] = field(default_factory=deque, init=False)
    _used: dict[bytes, None] = field(default_factory=dict, init=False)
    _denied: dict[str, tuple[float, str]] = field(default_factory=dict, init=False)
    _would_approve: dict[str, None] = field(default_factory=dict, init=False)
    _turn: str = field(default="", init=False)

    def note_turn(self, message: UserMessage) -> None:
        """Note the current message."""
        self._turn = message.turn

    def note_outage(self, why: str) -> None:
        """Note that the model could not be asked."""
        self._outages += 1
        if self._outages >= self.outages:
            self._switch_off(f"the model failed {self._outages} times in a row, lastly: {why}")

    def note_answer(self) -> None:
        """Note that the model answered."""
        self._outages = 0

    def note_would_approve(self, fingerprint: str) -> None:
        """Note that the model would have approved, and something else prevented it."""
        _remember(self._would_approve, fingerprint, None)

    def note_denied_by_person(self, fingerprint: str, now: float) -> None:
        """Note that a person refused a call."""
        _remember(self._denied, fingerprint, (now, self._turn))
        if fingerprint in self._would_approve:
            self._switch_off("a person denied a call that it would have approved")

    def was_just_denied(self, fingerprint: str, now: float) -> bool:
        """Return whether a person refused the same call in this turn or a moment ago."""
        denied = self._denied.get(fingerprint)
        if denied is None:
            return False
        at, turn = denied
        if not turn:
            # Denied before any message was read: the call belongs to the message that is read now.
            self._denied[fingerprint] = (at, self._turn)
            return True
        return now - at < _JUST_SECONDS or turn == self._turn

    def is_used(self, message: UserMessage, operations: Sequence[str]) -> bool:
        """Return whether the message has approved one of these operations: it does so once."""
        return any(_digest(message, one) in self._used for one in operations)

    def may_approve(self, now: float) -> bool:
        """Return whether the limit for this minute allows one more approval."""
        while self._approved_at and now - self._approved_at[0] >= _MINUTE:
            self._approved_at.popleft()
        return len(self._approved_at) < self.approvals_per_minute

    def note_approval(self, message: UserMessage, operations: Sequence[str], now: float) -> None:
        """Count one approval."""
        self._approved_at.append(now)
        for one in operations:
            _remember(self._used, _digest(message, one), None)

    def _switch_off(self, why: str) -> None:
        if self.off_because is None:
            self.off_because = why
            _log.warning("the auto-approver is off for the rest of this session: %s", why)


def _remember(known: dict[_K, _V], key: _K, value: _V) -> None:
    known[key] = value
    if len(known) > _MOST_REMEMBERED:
        del known[next(iter(known))]


def _digest(message: UserMessage, operation: str) -> bytes:
    return sha256(repr((message.turn, message.text, operation)).encode(errors="replace")).digest()


_log = logging.getLogger(__name__)

UNSURE: Final = "less sure than the threshold"
_SHADOW: Final = "shadow: recorded, not used"
TIMED_OUT: Final = "no answer in time"
_OWN_SERVER: Final = "proxy"
_OWN_TOOLS: Final = "ironcurtain_"
_UNCHECKED: Final = "(target check off) "
_SPENT: Final = "a person refused this call, or the user's message was used, or there are too many"


class AutoApproverConfig(Struct, frozen=True, kw_only=True):
    """The operator's settings of the auto-approver. Off by default; then no key is needed."""

    enabled: bool = False
    model_id: str = DEFAULT_MODEL
    api_base: str | None = None
    deadline_seconds: float = 8.0
    """Seconds for the model's answer, without the import of its library."""
    outages: int = 3
    approvals_per_minute: int = 20
    target_check: bool = True
    only: tuple[str, ...] = ()
    """Tools that it may approve, as `SERVER/TOOL` with `*`. Empty means all."""
    never: tuple[str, ...] = ()
    confidence: float | None = None
    """The least that counts, or None if the model is not asked how sure it is."""
    messages: int = 1
    """The number of the user's last messages that the model sees."""
    shadow: bool = False
    """Whether the decision is only recorded and approves nothing."""


def create_model(config: AutoApproverConfig, api_key: str) -> Model | None:
    """Return the model that a configuration names; None when the auto-approver is off.

    Raises:
        ConfigurationError: the model's id cannot be read. Nothing else fails here.
    """
    model_id = parse_model_id(config.model_id)
    if not config.enabled:
        return None
    return LitellmModel(
        model_id=model_id,
        api_key=api_key,
        api_base=config.api_base,
        answer_schema=answer_schema(confidence=config.confidence is not None),
    )


class HistoryKeeper(Protocol):
    """Knows which commits of the workspace somebody asked for. Its methods block."""

    def look(self) -> Unpublished | None:
        """Return what a push would publish besides what the user asked for."""

    def asked(self, seen: Unpublished, paths: Iterable[str] | None) -> None:
        """Note that a commit on top of what was seen was asked for."""

    def published(self, seen: Unpublished) -> None:
        """Note that what was seen is published."""


class Consultation(Struct, frozen=True, kw_only=True):
    """One question with all that is known of its answer."""

    result: AutoApproveResult
    completion: Completion | None = None
    outage: str | None = None
    """The reason why the model could not be asked, or None if it answered."""


async def consult(
    context: AutoApproveContext, model: Model, least: float | None = None
) -> Consultation:
    """Ask a model whether the message clearly authorizes the call.

    Never raises but when cancelled.

    Args:
        context: the data that the model sees.
        model: the model to ask.
        least: the confidence that an approval needs, or None if none is asked for.
    """
    if not context.user_message.strip():
        return Consultation(result=AutoApproveResult(decision="escalate", reasoning=NO_MESSAGE))
    try:
        prompt = SYSTEM_PROMPT if least is None else SYSTEM_PROMPT + WITH_CONFIDENCE
        completion = await model.complete(prompt, user_prompt(context))
    except Exception as error:  # noqa: BLE001  a client library raises whatever it likes
        why = _named(error)
        return Consultation(result=failed(why), outage=why)
    result = read_answer(completion.text, confidence=least is not None)
    if least is not None and (result.confidence is None or result.confidence < least):
        result = replace(result, decision="escalate", reasoning=f"{UNSURE}: {result.reasoning}")
    return Consultation(result=result, completion=completion)


def _named(error: Exception) -> str:
    """Return the fault in one short line. Libraries put whole requests into their messages."""
    text = " ".join(str(error).partition("Traceback")[0].split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _passed_on(said: str, reasoning: str, objection: str = "") -> Unreachable:
    """Pass the question on, and keep what was thought for the record.

    Args:
        said: `approve`, `escalate` or `not asked`.
        reasoning: the model's, or why it was not asked.
        objection: what stood against a model that would have approved.
    """
    thought: dict[str, Json] = {"said": said, "reasoning": reasoning}
    if objection:
        thought["objection"] = objection
    return Unreachable(details=(("autoApprover", thought),))


@dataclass(slots=True, kw_only=True)
class AutoApprover:
    """One session's auto-approver: a `Reviewer` that approves or reaches nobody."""

    model: Model
    config: AutoApproverConfig
    message: MessageSource
    around: CallSurroundings
    history: HistoryKeeper
    clock: Clock
    log: LlmLog | None = None
    breakers: Breakers = field(init=False)
    _messages: deque[UserMessage] = field(init=False)
    """The user's last ones, the newest last. Only the session's own source adds to them."""

    def __post_init__(self) -> None:
        """Set up the breakers."""
        self.breakers = Breakers(
            outages=self.config.outages, approvals_per_minute=self.config.approvals_per_minute
        )
        self._messages = deque(maxlen=self.config.messages)

    async def warm(self) -> None:
        """Load the library ahead of the first question. Never raises but when cancelled."""
        try:
            await self.model.warm()
        except Exception as error:  # noqa: BLE001  the feature is not there, the proxy is
            _log.warning("the auto-approver's model cannot be loaded: %s", _named(error))

    async def aclose(self) -> None:
        """Close the model's connections."""
        await self.model.aclose()

    async def note_answer(self, escalation: Escalation, ruling: Ruling) -> None:
        """Never approve what was refused; what a person lets be published counts as asked for."""
        if isinstance(ruling, Declined) and ruling.kind == "denied":
            self.breakers.note_denied_by_person(escalation.fingerprint, self.clock.monotonic())
        if isinstance(ruling, Approved) and not (ruling.by.is_automatic or ruling.changed):
            self._note_asked(escalation, await self._now())

    async def ask(self, escalation: Escalation) -> Ruling:
        """Approve, or let the next one be asked."""
        if not self._is_consulted(escalation):
            return Unreachable()
        try:
            return await self._ask(escalation)
        except Exception:  # noqa: BLE001  any failure counts as an objection
            # A defect of the check must not end the call that it could only have approved.
            _log.exception("the target check failed on %s", escalation.id)
            return _passed_on("not asked", "the target check failed")

    async def _ask(self, escalation: Escalation) -> Ruling:
        message = await anyio.to_thread.run_sync(self.message)
        if message is None:
            return _passed_on("not asked", NO_MESSAGE)
        self.breakers.note_turn(message)
        if not self._messages or self._messages[-1] != message:
            self._messages.append(message)
        around = await self._now()
        message = self._evidence(escalation, around)
        operations = operations_of(escalation, around)
        if self._is_spent(escalation, message, operations):
            return _passed_on("not asked", _SPENT)
        return await self._decide(escalation, message, operations)

    async def _decide(
        self, escalation: Escalation, message: UserMessage, operations: Sequence[str]
    ) -> Ruling:
        result = await self._consult(escalation, message)
        if result.decision != "approve":
            return _passed_on(result.decision, result.reasoning)
        # The agent may have made commits while the model was asked.
        around = await self._now()
        objection = self._objection(message, escalation, around)
        # Nothing is awaited from here on: of two calls at once, one finds the message used.
        if (
            objection is not None
            or self.breakers.off_because is not None
            or self._is_spent(escalation, message, operations)
        ):
            self.breakers.note_would_approve(escalation.fingerprint)
            _log.info("approval of %s not taken over: %s", escalation.id, objection or "spent")
            return _passed_on("approve", result.reasoning, objection or _SPENT)
        self.breakers.note_approval(message, operations, self.clock.monotonic())
        if self.config.shadow:
            return _passed_on("approve", result.reasoning, _SHADOW)
        self._note_asked(escalation, around)
        prefix = "" if self.config.target_check else _UNCHECKED
        # Words of a commit that the user did not quote were let through because it can be undone.
        return Approved(
            by=AUTO_APPROVER, reasoning=prefix + result.reasoning, revocable=escalation.held
        )

    async def _now(self) -> CallSurroundings:
        """Return the surroundings with what a push would publish at this moment."""
        seen = await anyio.to_thread.run_sync(self.history.look)
        return replace(self.around, unpublished=seen)

    def _note_asked(self, escalation: Escalation, around: CallSurroundings) -> None:
        seen = around.unpublished
        if seen is None:
            return
        commits, pushes = commits_and_pushes(escalation, around)
        # What came while a person thought was not approved with the rest.
        if pushes and seen.head == dict(escalation.context).get("Commit"):
            self.history.published(seen)
        for paths in commits:
            self.history.asked(seen, paths)

    def _evidence(self, escalation: Escalation, around: CallSurroundings) -> UserMessage:
        """Return the message that asks for the call: the newest, or an older one that still stands.

        An older one stands while every newer one is a plain request or a courtesy that asks for
        other things: anything else could take it back.
        """
        newest = self._messages[-1]
        for message in reversed(self._messages):
            if veto(message.text, escalation, around) is None:
                return message
            if not is_plain(message.text, escalation, around):
                break
        return newest

    def _is_consulted(self, escalation: Escalation) -> bool:
        """Return whether it may have a say at all."""
        own = escalation.server == _OWN_SERVER or _OWN_TOOLS in (
            escalation.tool[: len(_OWN_TOOLS)],
            escalation.exposed_name[: len(_OWN_TOOLS)],
        )
        return (
            self.config.enabled
            and not escalation.for_people
            and self._may_approve(f"{escalation.server}/{escalation.tool}")
            and not own  # the agent could widen its own permissions
            and self.breakers.off_because is None
        )

    def _may_approve(self, tool: str) -> bool:
        """Return whether the operator lets it approve this tool."""
        if any(fnmatchcase(tool, pattern) for pattern in self.config.never):
            return False
        return not self.config.only or any(fnmatchcase(tool, one) for one in self.config.only)

    def _is_spent(
        self, escalation: Escalation, message: UserMessage, operations: Sequence[str]
    ) -> bool:
        now = self.clock.monotonic()
        return (
            self.breakers.was_just_denied(escalation.fingerprint, now)
            or self.breakers.is_used(message, operations)
            or not self.breakers.may_approve(now)
        )

    def _objection(
        self, message: UserMessage, escalation: Escalation, around: CallSurroundings
    ) -> str | None:
        return veto(message.text, escalation, around) if self.config.target_check else None

    async def _consult(self, escalation: Escalation, message: UserMessage) -> AutoApproveResult:
        """Ask within the deadline, count outages, write the log."""
        context = AutoApproveContext(
            user_message=message.text,
            tool_name=f"{escalation.server}/{escalation.tool}",
            escalation_reason=escalation.ground.reason,
        )
        await warm_within(self.model, (escalation.deadline - self.clock.steady()).total_seconds())
        left = (escalation.deadline - self.clock.steady()).total_seconds()
        started = self.clock.monotonic()
        consultation = Consultation(result=failed(TIMED_OUT), outage=TIMED_OUT)
        with anyio.move_on_after(min(self.config.deadline_seconds, max(left, 0.0))):
            consultation = await consult(context, self.model, self.config.confidence)
        if consultation.outage is not None:
            self.breakers.note_outage(consultation.outage)
        else:
            self.breakers.note_answer()
        if self.log is not None:
            await self.log.append(
                self._entry(context, consultation, self.clock.monotonic() - started)
            )
        return consultation.result

    def _entry(
        self, context: AutoApproveContext, consultation: Consultation, seconds: float
    ) -> dict[str, Json]:
        completion = consultation.completion
        return {
            "timestamp": self.clock.now().isoformat(),
            "modelId": self.config.model_id,
            "prompt": {
                "userMessage": context.user_message,
                "toolName": context.tool_name,
                "escalationReason": context.escalation_reason,
            },
            "response": None if completion is None else completion.text,
            "decision": consultation.result.decision,
            "reasoning": consultation.result.reasoning,
            "usage": None if completion is None else usage_of(completion),
            "durationMs": round(seconds * 1000),
        }
