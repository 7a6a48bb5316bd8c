"""The agent's requests besides tool calls, and what it listens to.

A denial has the error code of a missing resource or prompt, so that it does not reveal which exist.

A client without a handshake is told of nothing that it did not ask for. Its `subscriptions/listen`
lasts as long as it listens. The first message names what it will be told of: changes of lists, and
the resources that the policy lets it read. Each message names the request.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Struct, field

from ironcurtain_proxy.agent.replies import NO_SUCH_RESOURCE, fault, refusal_blocks
from ironcurtain_proxy.agent.requests import INTERNAL_ERROR
from ironcurtain_proxy.jsonrpc.codec import INVALID_PARAMS
from ironcurtain_proxy.model.operation import SUBSCRIPTION_KEY, ListKind, Method
from ironcurtain_proxy.model.reply import Answered, Failed, Refused, Reply, Withheld
from ironcurtain_proxy.model.values import Json, list_of, object_of

if TYPE_CHECKING:
    from ironcurtain_proxy.agent.requests import ServerAnswer
    from ironcurtain_proxy.agent.transport import AgentTransport
    from ironcurtain_proxy.jsonrpc.codec import MessageId
    from ironcurtain_proxy.model.operation import Caller
    from ironcurtain_proxy.ports import OperationHandler


LISTS: Final[Mapping[str, ListKind]] = {
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""The key of the list in a method's result, by method."""

REQUESTS: Final[frozenset[Method]] = frozenset(
    {
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/get",
        "completion/complete",
    }
)


def answer_to(method: str, reply: Reply, named: str) -> Mapping[str, object]:
    """Return the `result` or `error` of a request.

    Args:
        method: of the request.
        reply: the reply of `mediation`.
        named: the URI or the prompt, as the agent named it.
    """
    code = NO_SUCH_RESOURCE if method.startswith("resources/") else INVALID_PARAMS
    match reply:
        case Answered(result=answer):
            return {"result": answer.result} if answer.error is None else {"error": answer.error}
        case Refused():
            words = " ".join(refusal_blocks(reply, named, "operation"))
            return fault(code, words, {"rule": reply.ground.rule})
        case Withheld(ground=ground):
            return fault(INTERNAL_ERROR, f"DENIED: {ground.reason}", {"rule": ground.rule})
        case Failed(message=message):
            return fault(INTERNAL_ERROR, f"Error: {message}")


# --- subscriptions


_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
_RESOURCES: Final = "resourceSubscriptions"
_LISTS: Final[Mapping[str, str]] = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}

_MOST: Final = 64
"""The most requests that listen at once."""
_MOST_URIS: Final = 1000
"""The most resources of one of them: each is decided and recorded."""
_LARGE: Final = 16 * 1024
"""Characters of news beyond which only the resource is kept until it can be told."""
_END: Final = 2.0
"""Seconds for servers to hear that nobody listens any more."""


class _Listening(Struct, eq=False):
    wanted: Mapping[str, None]
    """The resources that it asks for."""
    lists: frozenset[str]
    uris: list[str] | None = None
    """Those that it may read, or None if it has not been told which yet."""
    early: dict[tuple[str, object], Mapping[str, Json]] = field(default_factory=dict)
    """The newest news of each that came before: it is told of nothing until then."""
    ended: anyio.Event = field(default_factory=anyio.Event)


class Subscriptions:
    """The requests of one connection that listen."""

    def __init__(self, transport: "AgentTransport", operate: "OperationHandler") -> None:
        """Begin without listeners.

        Args:
            transport: reaches the client.
            operate: subscribes to resources.
        """
        self._transport = transport
        self._operate = operate
        self._open: dict[MessageId, _Listening] = {}
        self._leaving: dict[str, anyio.Event] = {}
        """The resources that are given back now."""

    async def listen(
        self, caller: "Caller", request_id: "MessageId", params: "Mapping[str, Json]"
    ) -> "ServerAnswer":
        """Tell a client of what it asks for, until it withdraws the request or the proxy ends."""
        wanted = params.get("notifications")
        if not isinstance(wanted, dict):
            return fault(INVALID_PARAMS, "subscriptions/listen needs notifications (object)")
        if len(self._open) >= _MOST:
            return fault(INTERNAL_ERROR, "too many requests listen")
        texts = [uri for uri in list_of(wanted.get(_RESOURCES)) if isinstance(uri, str)]
        lists = frozenset(key for key in _LISTS.values() if wanted.get(key) is True)
        # Open from now on: it counts, and nobody gives back what it is about to take.
        one = self._open[request_id] = _Listening(dict.fromkeys(texts[:_MOST_URIS]), lists)
        taken: list[str] = []
        try:
            for uri in one.wanted:
                while uri in self._leaving:  # else this would end with the one before
                    await self._leaving[uri].wait()
                # One by one: each that was taken is given back, also if the next is cancelled.
                taken += [uri] * await self._is_done("resources/subscribe", uri, caller)
            self._acknowledge(request_id, one, taken)
            await one.ended.wait()
        finally:
            del self._open[request_id]
            with anyio.move_on_after(_END, shield=True):
                for uri in taken:
                    await self._give_back(uri, caller)
        return {"result": {"_meta": {SUBSCRIPTION_KEY: request_id}}}

    def _acknowledge(self, request_id: "MessageId", one: _Listening, taken: list[str]) -> None:
        """Tell what a request will be told of, then what has come meanwhile."""
        told: dict[str, Json] = dict.fromkeys(sorted(one.lists), True)
        told |= {_RESOURCES: [*taken]} if taken else {}
        self._transport.post(_message(_ACKNOWLEDGED, {"notifications": told}, request_id))
        one.uris = taken
        for (method, uri), params in one.early.items():
            if uri is None or uri in taken:
                self._transport.post(_message(method, params, request_id))

    async def notice(self, method: str, params: "Mapping[str, Json] | None") -> None:
        """Send a notification to the requests that listen for it."""
        uri = (params or {}).get("uri") if method == UPDATED else None
        for request_id, one in [*self._open.items()]:
            of = one.wanted if one.uris is None else one.uris
            if uri not in of and _LISTS.get(method) not in one.lists:
                continue
            if one.uris is None:
                is_large = len(str(params)) > _LARGE
                one.early[method, uri] = {"uri": uri} if is_large and uri else params or {}
            elif request_id in self._open:
                await self._transport.send(_message(method, params or {}, request_id))

    def end(self) -> None:
        """End all requests with their result: the connection ends, or other resources are shown."""
        for one in self._open.values():
            one.ended.set()

    async def _give_back(self, uri: str, caller: "Caller") -> None:
        if any(uri in other.wanted for other in self._open.values()):
            return
        left = self._leaving[uri] = anyio.Event()
        try:
            await self._is_done("resources/unsubscribe", uri, caller)
        finally:
            del self._leaving[uri]
            left.set()

    async def _is_done(self, method: Method, uri: str, caller: "Caller") -> bool:
        reply = await self._operate(method, {"uri": uri}, None, caller=caller)
        return isinstance(reply, Answered) and reply.result.error is None


def _message(
    method: str, params: "Mapping[str, Json]", request_id: "MessageId"
) -> "Mapping[str, object]":
    named = {**object_of(params.get("_meta")), SUBSCRIPTION_KEY: request_id}
    return {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": named}}
