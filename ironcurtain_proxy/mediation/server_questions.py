"""A server's own questions, carried like every other operation, from the server to the client."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.session import Session
from ironcurtain_proxy.model.asked import asked_by
from ironcurtain_proxy.model.caller import Caller
from ironcurtain_proxy.model.decision import Deny, Ground
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.operation import Method
from ironcurtain_proxy.model.reply import Answered, Refused, Reply

_NOT_OFFERED: Final = {"error": {"code": -32601, "message": "Method not found"}}
_REJECTED: Final = -1
"""The code of MCP for sampling that a user rejects."""

_TO_NOTHING: Final = Ground(
    "question-of-no-call", "the server asks while nothing that the agent asked for is under way"
)
_UNSERVED: Final = Ground("not-offered", "servers cannot ask this")
_NO_CLIENT: Final = Ground("client-cannot-ask", "the agent's client did not say that it asks this")


class QuestionTarget(Protocol):
    """The agent's client, as far as it can be asked."""

    def can_ask(self, method: Method, mode: str, caller: Caller | None) -> bool:
        """Whether this caller declared that it takes such questions."""


class ServerQuestions(Struct, frozen=True, kw_only=True):
    """The questions of all servers of one session."""

    session: Session
    client: QuestionTarget

    async def handle(
        self,
        server: str,
        method: str,
        params: Mapping[str, Json],
        under_way: Sequence[Caller | None],
    ) -> Mapping[str, object]:
        """Decide on a question, ask it, and give the `result` or `error` for the server.

        Args:
            server: the operator's name of the server.
            method: elicitation, sampling, or a method that is not served.
            params: as the server sent them.
            under_way: the callers of the agent's operations that the server works on.
        """
        match method:
            case "elicitation/create" | "sampling/createMessage":
                return await self._decide(server, method, params, under_way)
            case _:
                await note_unserved(self.session.journal, method, _UNSERVED, server)
                return _NOT_OFFERED

    async def _decide(
        self,
        server: str,
        method: Method,
        params: Mapping[str, Json],
        under_way: Sequence[Caller | None],
    ) -> Mapping[str, object]:
        mode = str(params.get("mode", "form")) if method == "elicitation/create" else ""
        able = [one for one in reversed(under_way) if self.client.can_ask(method, mode, one)]
        asked = asked_by(server, method, params)
        case = self.session.journal.open_operation(asked, able[0] if able else None)
        case.note(("underWay", len(under_way)))
        if not under_way:
            life = self.session.journal.refuse(case, "policy", _TO_NOTHING)
            return _answer(method, await self.session.journal.guard(case, life))
        if not able:
            life = self.session.journal.refuse(case, "policy", _NO_CLIENT)
            return _answer(method, await self.session.journal.guard(case, life))
        return _answer(method, await self.session.mediator.carry(case))


def _answer(method: Method, reply: Reply) -> Mapping[str, object]:
    if isinstance(reply, Answered):
        answer = reply.result
        return {"result": answer.result} if answer.error is None else {"error": answer.error}
    if isinstance(reply, Refused) and reply.ground.rule in {"server-asks", _NO_CLIENT.rule}:
        return _NOT_OFFERED
    if method == "elicitation/create":
        return {"result": {"action": "decline"}}
    return {"error": {"code": _REJECTED, "message": "the request was rejected"}}


UNKNOWN: Final = "unknown"
"""The server of a request of the agent's."""

_METHOD_LENGTH: Final = 128


async def note_unserved(
    journal: Journal, method: str, ground: Ground, server: str = UNKNOWN
) -> None:
    """Record a request that was refused by its method or shape: no policy decides on it.

    The log holds every request. The parameters are not recorded, because their meaning is unknown
    for a request that is not decided.

    Args:
        journal: of the session.
        method: untrusted; stands in the record in the place of a tool.
        ground: why.
        server: who asked, if it was a server.
    """
    named = method[:_METHOD_LENGTH]
    case = journal.open(named, {}, (server, named), decision=Deny(ground))
    await journal.guard(case, journal.refuse(case, "arguments", ground))
