"""A server's own questions, carried like every other operation, from the server to the client."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ironcurtain_proxy.mediation.session import Session
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.operation import Asked, Method, label
from ironcurtain_proxy.model.reply import Answered, Refused, Reply

_KEYS: Final[Mapping[Method, frozenset[str]]] = {
    "elicitation/create": frozenset({"mode", "message", "requestedSchema", "url", "elicitationId"}),
    "sampling/createMessage": frozenset(
        {"messages", "modelPreferences", "systemPrompt", "temperature", "maxTokens"}
        | {"stopSequences", "metadata", "tools", "toolChoice"}
    ),
}
"""What is passed on of a question. Not `includeContext`: it would hand the server what the agent
heard from others."""

_NOT_OFFERED: Final = {"error": {"code": -32601, "message": "Method not found"}}
_REJECTED: Final = -1
"""The code of MCP for sampling that a user rejects."""

_TO_NOTHING: Final = Ground(
    "question-of-no-call", "the server asks while nothing that the agent asked for is under way"
)
_NO_CLIENT: Final = Ground("client-cannot-ask", "the agent's client did not say that it asks this")


class Client(Protocol):
    """The agent's client, as far as it can be asked."""

    def can_ask(self, method: Method, mode: str) -> bool:
        """Whether it declared that it takes such questions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerQuestions:
    """Those of all servers of one session."""

    session: Session
    client: Client

    async def handle(
        self, server: str, method: Method, params: Mapping[str, Json], under_way: int
    ) -> Mapping[str, object]:
        """Decide on a question, ask it, and give the `result` or `error` for the server.

        Args:
            server: the operator's name of the server.
            method: elicitation or sampling.
            params: as the server sent them.
            under_way: how many operations of the agent's the server works on.
        """
        keys = _KEYS[method]
        mode = str(params.get("mode", "form")) if method == "elicitation/create" else ""
        case = self.session.journal.open_operation(
            Asked(
                method=method,
                exposed_name=f"{method} of {server}",
                server=server,
                tool=label(method),
                arguments={name: value for name, value in params.items() if name in keys},
                params=params,
                judged=keys,
            )
        )
        case.note(("underWay", under_way))
        if not under_way:
            life = self.session.journal.refuse(case, "policy", _TO_NOTHING)
            return _answer(method, await self.session.journal.guard(case, life))
        if not self.client.can_ask(method, mode):
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
