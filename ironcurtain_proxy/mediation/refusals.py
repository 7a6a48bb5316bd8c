"""Calls that end without a forwarded result: their record, and the reply to the agent."""

from typing import Final, assert_never

from msgspec.structs import replace

from ironcurtain_proxy.approval.settlements import by_refusal, held, refused_by
from ironcurtain_proxy.errors import DownstreamError, UnansweredError
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.model.asking import question_in
from ironcurtain_proxy.model.audit import ResultSummary
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.decision import Escalate, Ground
from ironcurtain_proxy.model.escalation import Declined, Escalation, Held, Unreachable
from ironcurtain_proxy.model.grounds import asking_answer, held_part
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.reply import Failed, Refused, Withheld
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.ports import Pins

_HELD_CALL: Final = "held_call"


async def turn_down(
    journal: Journal, case: Case, question: Escalation, ruling: Declined | Unreachable | Held
) -> Refused:
    """Record that a call is refused or held, and build the reply."""
    match ruling:
        case Unreachable(details=details):
            case.note(*details)
            case.was_not_asked()
            refused = await journal.refuse(case, "no-reviewer", question.ground)
            await journal.unattended.found()
            return refused
        case Held(id=identifier):
            case.settle(held(question.ground, identifier))
            return await journal.refuse(case, "held", question.ground, identifier)
        case Declined(note=note):
            case.settle(by_refusal(ruling, question.id))
            refused = await journal.refuse(case, refused_by(ruling), question.ground, note)
            return replace(refused, decider=ruling.by)
        case _:
            assert_never(ruling)


async def refuse_later(journal: Journal, question: Escalation, declined: Declined) -> None:
    """Record that a held call was refused while the agent did not wait for the answer.

    The record is one of the proxy's own, because the held call has its record, and the agent may
    never make the call again.
    """
    about: dict[str, Json] = {
        "escalationId": question.id,
        "serverName": question.server,
        "toolName": question.tool,
    }
    params: dict[str, Json] = {"name": _HELD_CALL, "arguments": about}
    decision = Escalate(question.ground)
    case = journal.open(_HELD_CALL, params, ("ironcurtain", _HELD_CALL), decision=decision)
    await turn_down(journal, case, question, declined)


def why_withheld(pins: Pins, case: Case, answer: ToolResult) -> tuple[Ground, str | None] | None:
    """The reason why an answer is withheld, and the question in it; None: it is passed on."""
    asked = question_in(answer)
    ground = changed_view(pins, case.call, answer) if asked is None else asking_answer(asked)
    return None if ground is None else (ground, asked)


async def withhold(
    journal: Journal, case: Case, summary: ResultSummary, ground: Ground, asked: str | None
) -> Withheld:
    """Record that an answer is withheld, and build the reply."""
    denied = replace(summary, status="denied", error=ground.reason, asked=asked)
    recorded = await journal.end(case, denied)
    return Withheld(ground=ground, recorded=recorded, put_back=case.put_back)


async def unanswered(journal: Journal, case: Case, error: DownstreamError) -> Failed:
    """Record that a server did not answer a call, and build the reply."""
    recorded = await journal.end(case, ResultSummary(status="error", error=str(error)))
    return Failed(
        message=str(error),
        perhaps_done=isinstance(error, UnansweredError),
        recorded=recorded,
        put_back=case.put_back,
        allowed=case.allowed,
    )


_VIEW: Final = "ui:"


def changed_view(pins: Pins, operation: Operation, answer: ToolResult) -> Ground | None:
    """The reason why the answer to a read is withheld; None: it is no view, or an unchanged one.

    A view of MCP Apps runs in the agent's client. Its URI is declared by a tool, which is pinned;
    its content is seen only when it is read.
    """
    if operation.method != "resources/read" or answer.result is None:
        return None
    uri = operation.arguments.get("uri")
    if not isinstance(uri, str) or uri[: len(_VIEW)].lower() != _VIEW:
        return None
    why = pins.seen(operation.server, "views", uri, answer.result.get("contents"))
    return None if why is None else held_part("view", why)
