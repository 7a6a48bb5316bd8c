"""The answer of a server: recorded, withheld where it must be, and given to the agent."""

from collections.abc import Callable, Mapping
from typing import Final, assert_never

import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.errors import DownstreamError, UnansweredError
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.judge import Judge
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.case import Case, by_refusal, held, refused_by
from ironcurtain_proxy.model.crossing import asked_by, operation_of
from ironcurtain_proxy.model.decision import Allow, Escalate, Ground, asking_answer, held_part
from ironcurtain_proxy.model.escalation import Declined, Escalation, Held, Unreachable, is_hidden
from ironcurtain_proxy.model.operation import QUESTION_METHODS, Operation
from ironcurtain_proxy.model.reply import (
    URL_ELICITATION_REQUIRED,
    Answered,
    Failed,
    Refused,
    RefusedBy,
    Reply,
    ResultSummary,
    Withheld,
    pages_in,
    question_in,
)
from ironcurtain_proxy.model.request import AccessRequest, Facts
from ironcurtain_proxy.model.server import ResultRules, ToolResult
from ironcurtain_proxy.model.values import Json, lazy
from ironcurtain_proxy.ports import Pins, World

_ESCAPES: Final = lazy(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, movement
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, the clipboard
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)
_MOST_DEPTH: Final = 200
_LARGE: Final = 64 * 1024
"""Bytes from which on the work is done in a thread."""


class Results(Struct, frozen=True):
    """The operator's rules for results, by server."""

    rules: Mapping[str, ResultRules] = field(default_factory=dict)
    redact: Callable[[Json], Json] = lambda value: value
    """Masks every secret in a value."""

    async def treated(self, server: str, answer: ToolResult, size: int) -> ToolResult:
        """Return the answer as the agent gets it.

        Args:
            server: the operator's name of it.
            answer: as it was sent.
            size: bytes of it.
        """
        rules = self.rules.get(server)
        if rules is None or not (rules.clean or rules.redact_secrets):
            return answer
        if size <= _LARGE:
            return self._treated(rules, answer)
        return await anyio.to_thread.run_sync(self._treated, rules, answer)

    def _treated(self, rules: ResultRules, answer: ToolResult) -> ToolResult:
        if answer.error is not None:
            return ToolResult(error=self._object(rules, answer.error))
        result = self._object(rules, answer.result or {})
        return answer if result == answer.result else answer.with_result(result, "")

    def _object(self, rules: ResultRules, value: Mapping[str, Json]) -> Mapping[str, Json]:
        treated: Json = dict(value)
        if rules.clean:
            treated = cleaned(treated)
        if rules.redact_secrets:
            treated = self.redact(treated)
        return treated if isinstance(treated, dict) else {}


def cleaned(value: Json, depth: int = _MOST_DEPTH) -> Json:
    """Return a value without escapes of terminals and invisible characters in its texts."""
    if isinstance(value, str):
        return _plain(value)
    if depth == 0:
        return None  # nobody reads so deep, and what is hidden there is not passed on
    if isinstance(value, list):
        return [cleaned(inner, depth - 1) for inner in value]
    if isinstance(value, dict):
        return {_plain(name): cleaned(inner, depth - 1) for name, inner in value.items()}
    return value


def _plain(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text)
    hidden = [one for one in set(text) if is_hidden(one)]
    return text.translate({ord(one): None for one in hidden}) if hidden else text


def authorized_by(case: Case, request: AccessRequest) -> AuthorizedCall:
    """Return a call with the arguments and the request that the policy judged."""
    one, given = case.call, case.arguments
    about = one.request_id, one.server, one.tool
    return AuthorizedCall(*about, given, one.params, request, one.method, one.caller)


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


async def refuse_judged(journal: Journal, case: Case, by: RefusedBy, ground: Ground) -> Refused:
    """Refuse a call for what is in it. What a person wrote into it is not held against it."""
    if case.edited is None:
        return await journal.refuse(case, by, ground)
    why = f"the call as it was changed is denied: {ground.reason}"
    declined = Declined(by=case.edited.approved.by, kind="invalid", reason=why)
    return await turn_down(journal, case, case.edited.question, declined)


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
    """Return why an answer is withheld, and the question in it, or None if it is passed on."""
    asked = question_in(answer)
    if asked is None and case.call.method != "resources/read":
        return None
    ground = _changed_view(pins, case.call, answer) if asked is None else asking_answer(asked)
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


def _changed_view(pins: Pins, operation: Operation, answer: ToolResult) -> Ground | None:
    """Return why the answer to a read is withheld, or None if it is no view, or an unchanged one.

    A view of MCP Apps runs in the agent's client. Its URI is declared by a tool, which is pinned;
    its content is seen only when it is read.
    """
    uri = operation.arguments.get("uri")
    if answer.result is None or not isinstance(uri, str) or uri[: len(_VIEW)].lower() != _VIEW:
        return None
    why = pins.seen(operation.server, "views", uri, answer.result.get("contents"))
    return None if why is None else held_part("view", why)


class Outcomes(Struct, frozen=True, kw_only=True):
    """The outcomes of one session's calls."""

    world: World
    journal: Journal
    judge: Judge
    results: Results = field(default_factory=Results)

    async def reply(self, case: Case, authorized: AuthorizedCall, result: ToolResult) -> Reply:
        """Record an answer, and make the reply to the agent from it."""
        summary = self.world.recorder.summarize(result)
        why = why_withheld(self.world.pins, case, result)
        if why is not None:
            told = await self._with_pages(case, result)
            if told is None:
                return await withhold(self.journal, case, summary, *why)
            result, summary = told, replace(summary, asked=why[1])
        if summary.status == "success":
            self.world.facts.succeeded(authorized)
        recorded = await self.journal.end(case, summary)
        allowed = case.allowed
        if self.results.rules:
            result = await self.results.treated(case.call.server, result, summary.size or 0)
        if self.world.origins is not None and case.call.method not in QUESTION_METHODS:
            asked = authorized.request
            self.world.origins.note(case.call.server, case.call.tool, asked, result)
        return Answered(result=result, recorded=recorded, put_back=case.put_back, allowed=allowed)

    async def _with_pages(self, case: Case, answer: ToolResult) -> ToolResult | None:
        """Return an error that sends the user to pages, or None if it is none that may be shown.

        Each page is judged like a question that the server asks meanwhile. What else stands in the
        error does not cross. The newer era has no such error.
        """
        call, client, hosts = case.call, self.world.client, list[Json]()
        if client is None or call.caller is not None or call.method in QUESTION_METHODS:
            return None
        pages = [asked_by(call.server, "elicitation/create", one) for one in pages_in(answer)]
        for page in pages:
            facts, judged = await self.judge.examine(operation_of(page, call.request_id))
            if not isinstance(facts, Facts) or not isinstance(judged.decision, Allow):
                return None
            hosts += [facts.request.question.host] if facts.request.question else []
        shown = client.shown(call.server, [page.arguments for page in pages])
        message = (answer.error or {}).get("message")
        told: dict[str, Json] = {"code": URL_ELICITATION_REQUIRED, "message": message}
        case.note(("pages", hosts))
        return ToolResult(error={**told, "data": {"elicitations": shown}}) if shown else None
