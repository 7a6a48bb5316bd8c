"""Questions to a reviewer through the agent's own client: MCP elicitation.

The client shows a form to its user. An answer that a program could have filled in does not count.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.agent.asking import kinds_shown
from ironcurtain_proxy.errors import AgentError
from ironcurtain_proxy.model.decider import HUMAN, TIMEOUT
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling, Unreachable
from ironcurtain_proxy.model.question import places, question, visible

if TYPE_CHECKING:
    from ironcurtain_proxy.agent.asking import AgentClient
    from ironcurtain_proxy.model.json import Json
    from ironcurtain_proxy.ports import Clock


TOO_FAST: Final = 0.3
"""Seconds. A faster answer comes from a program: a person needs longer to read the question."""

MAX_NOTE: Final = 500
"""Characters of a note to the agent; a longer one is cut."""

_APPROVE: Final = "approve"
_REMEMBER: Final = "approve and remember"
_DENY: Final = "deny"


class ElicitationReviewer:
    """Implements `ports.Reviewer` over the agent's client."""

    def __init__(self, client: "AgentClient", clock: "Clock") -> None:
        self._client = client
        self._clock = clock

    def is_reachable(self) -> bool:
        """Whether a client declared that it shows forms."""
        return any("form" in kinds_shown(one) for one in self._client.every())

    async def ask(self, escalation: Escalation) -> Ruling:
        """Show the form, and wait until the escalation's deadline at most."""
        caller = escalation.caller
        if "form" not in kinds_shown(self._client.capabilities_of(caller) or {}):
            return Unreachable()
        seconds = (escalation.deadline - self._clock.steady()).total_seconds()
        if seconds <= 0:
            return _expired()
        started = self._clock.monotonic()
        try:
            answer = await self._client.request(
                "elicitation/create", _form(escalation), seconds, caller
            )
        except TimeoutError:
            return _expired()
        except AgentError:
            return Unreachable()
        if self._clock.monotonic() - started < TOO_FAST:
            return Unreachable()
        return _read(answer, escalation)


def _form(escalation: Escalation) -> "dict[str, Json]":
    decisions: list[Json] = [_APPROVE, _DENY]
    decisions[1:1] = _remembering(escalation)
    return {
        "message": "\n".join(question(escalation)),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Decision",
                    "description": "Approve this call, or not",
                    "enum": decisions,
                },
                "note": {
                    "type": "string",
                    "title": "Note",
                    "description": "Message to the agent (optional)",
                    "maxLength": MAX_NOTE,
                },
            },
            "required": ["decision"],
        },
    }


def _remembering(escalation: Escalation) -> list[str]:
    """One decision for each candidate."""
    return [f"{_REMEMBER}{place}" for place in places(escalation)]


def _read(answer: "Mapping[str, Json]", escalation: Escalation) -> Ruling:
    match answer.get("action"):
        case "accept":
            content = answer.get("content")
            return _read_form(content if isinstance(content, dict) else {}, escalation)
        case "decline":
            return Declined(by=HUMAN, kind="denied")
        case "cancel":
            # The form was closed without an answer.
            return Unreachable()
        case _:
            return _invalid("the action is none of accept, decline and cancel")


def _read_form(content: "Mapping[str, Json]", escalation: Escalation) -> Ruling:
    note = content.get("note", "")
    if not isinstance(note, str | None) or not content.keys() <= {"decision", "note"}:
        return _invalid("the form holds what was not asked for")
    note = visible((note or "").strip()[:MAX_NOTE])
    match content.get("decision"):
        case "approve":
            return Approved(by=HUMAN, note=note)
        case str() as said if said in _remembering(escalation):
            remember = _remembering(escalation).index(said)
            return Approved(by=HUMAN, remember=remember, note=note)
        case "deny":
            return Declined(by=HUMAN, kind="denied", note=note)
        case _:
            return _invalid("the decision is none of those that were offered")


def _expired() -> Declined:
    return Declined(by=TIMEOUT, kind="expired")


def _invalid(reason: str) -> Declined:
    return Declined(by=HUMAN, kind="invalid", reason=reason)
