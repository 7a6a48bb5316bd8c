"""The MCP server that the agent talks to.

It serves both eras of the protocol (see `agent/replies.py`). Servers' own questions are sent by
`agent/asking.py`.

Knows MCP and nothing of policies: a request goes to the handler it was given, as raw JSON, and
comes back as a `Reply`.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from msgspec.structs import replace

from ironcurtain_proxy.agent.asking import Introduction, no_introduction
from ironcurtain_proxy.agent.operations import LISTS, REQUESTS, Subscriptions, answer_to
from ironcurtain_proxy.agent.replies import (
    HEADER_MISMATCH,
    LEVELS,
    REMOVED,
    UNSUPPORTED_VERSION,
    caller_of,
    discovery,
    error_result,
    fault,
    introduction,
    is_introduction,
    is_modern,
    notes_of,
    result_of,
    result_of_before,
    stamped,
    stamped_text,
    tool_of_before,
    without_tasks,
)
from ironcurtain_proxy.agent.requests import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    SMALL,
    Answerer,
    EncodedResult,
    ErrorReply,
    Message,
    RequestCapacity,
    Requests,
    ServerAnswer,
    Service,
)
from ironcurtain_proxy.agent.rounds import TASK_METHODS, Rounds
from ironcurtain_proxy.agent.sealing import Sealing
from ironcurtain_proxy.jsonrpc.codec import (
    INVALID_PARAMS,
    MessageId,
    MirroredPaths,
    encode,
    message_id,
    mismatch,
)
from ironcurtain_proxy.jsonrpc.pipes import OF_REQUEST, STREAM_ENDED, UNREAD
from ironcurtain_proxy.model.crossing import fault_of
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.operation import HEADERS_KEY, Caller, ListKind, Method, client_name
from ironcurtain_proxy.model.reply import Answered, Reply
from ironcurtain_proxy.model.values import object_of

if TYPE_CHECKING:
    from ironcurtain_proxy.agent.transport import AgentTransport
    from ironcurtain_proxy.model.operation import ProgressListener
    from ironcurtain_proxy.model.values import Json
    from ironcurtain_proxy.ports import CallHandler, OperationHandler

_log = logging.getLogger(__name__)

OtherLister: TypeAlias = "Callable[[ListKind], Awaitable[list[Json]]]"
InstructionsSource: TypeAlias = Callable[[], Awaitable[Introduction]]
ToolLister: TypeAlias = "Callable[[], Awaitable[list[Json]]]"
LevelSetter: TypeAlias = Callable[[str], Awaitable[None]]

CallAnswerer: TypeAlias = "Callable[[Mapping[str, Json], Caller], Awaitable[ServerAnswer]]"
ModernAnswerer: TypeAlias = (
    "Callable[[Caller, MessageId, Mapping[str, Json]], Awaitable[ServerAnswer]]"
)
"""Answers a request that names its version itself."""

CallRefuser: TypeAlias = "Callable[[str, Mapping[str, Json]], Awaitable[Reply]]"
UnservedNoter: TypeAlias = Callable[[str, Ground], Awaitable[None]]

_ABOVE_WARNING: Final = frozenset(LEVELS[4:])

_UNSERVED: Final[Mapping[object, str]] = {
    METHOD_NOT_FOUND: "not-offered",
    UNSUPPORTED_VERSION: "unsupported-version",
}
"""The rule in the record, by error code; `invalid-params` for any other code."""

_ASKING: Final[tuple[Method, ...]] = ("resources/read", "prompts/get", "completion/complete")
"""The operations that belong to a call, with progress, log messages and questions of their own."""

_MARKS: Final = frozenset({"resultType", "_meta"})
"""The keys of a result that the newer era adds to."""

_OF_CALLS: Final = "tools/call needs a name (string) and arguments (object)"
_UNFINISHED_CALL: Final = {
    "result": error_result(
        "Error: the input was closed, and the call was not done in time. It may have been carried "
        "out."
    )
}
_UNFINISHED: Final = fault(INTERNAL_ERROR, "the input was closed before the answer was there")


@dataclass(slots=True, kw_only=True)
class AgentServer:
    """One agent on one connection."""

    handle_call: "CallHandler"
    list_tools: ToolLister
    set_log_level: LevelSetter
    transport: "AgentTransport"
    handle_operation: "OperationHandler"
    list_others: OtherLister
    turn_away: CallRefuser
    """Refuses a call for which there is no capacity."""
    note_unserved: UnservedNoter
    """Records a request that is refused by its method or shape."""
    on_client: Callable[[str], None]
    """Called with the program that the agent says it is."""
    capacity: RequestCapacity = field(default_factory=RequestCapacity)
    on_abandon: Callable[[], None] = lambda: None
    """Called before all requests end unanswered, because the agent or the proxy ends."""
    in_headers: Callable[[str], MirroredPaths] = lambda _: {}
    """Gives the arguments of a tool, by the agent's name, that stand in headers over HTTP."""
    sealing: Sealing = field(default_factory=Sealing)
    """Seals what clients carry from one request of a call to the next."""
    lists_last: Callable[[str], float] = lambda _: 0.0
    """Gives for how many seconds a client may show a list, by the method."""
    instructions: InstructionsSource = no_introduction
    """Gives the instructions for the agent when it connects."""
    is_behind_front: bool = False
    """Whether our own front over HTTP started this proxy. No agent can speak in its place."""
    _ready: bool = field(default=False, init=False)
    """Whether a client has sent `initialize`."""
    _log_level: str = field(default="", init=False)
    _reads_stream_ends: bool = field(default=False, init=False)
    """Whether our front has said that it reads them."""
    _is_shared: bool = field(default=False, init=False)
    """Whether the front brings requests of many clients, each of which must say who asks: what one
    said with `initialize` would hold for all."""
    rounds: Rounds = field(init=False)
    """The calls of clients without a handshake, and the questions to clients."""
    subscriptions: Subscriptions = field(init=False)
    _number: int = field(default=0, init=False)
    """The number of requests without a handshake."""
    _noted: str | None = field(default=None, init=False)
    """The client of the newest of them; `None`: there was none."""
    _listing: int = 0
    """The lists of tools that are being made for the client of the connection."""
    _requests: Requests = field(init=False)
    _calls: Service = field(init=False)
    _others: Mapping[str, Service] = field(init=False)

    _modern: Mapping[str, "ModernAnswerer"] = field(init=False)

    def __post_init__(self) -> None:
        """Set the services that answer slow requests."""
        twice = partial(self._note_unread, "a request with this id is under way")
        self._requests = Requests(self.transport.answer, self.capacity, twice)
        self.rounds = Rounds(self.transport, self.sealing)
        self.subscriptions = Subscriptions(self.transport, self.handle_operation)
        self._calls = Service(self._call, self._turn_away, _UNFINISHED_CALL)
        slow: Mapping[str, Answerer] = {
            "tools/list": self._list,
            "logging/setLevel": self._set_level,
            **{method: partial(self._list_others, kind) for method, kind in LISTS.items()},
            **{method: partial(self._operate, method) for method in REQUESTS},
        }
        self._others = {
            method: Service(answer, _busy, _UNFINISHED) for method, answer in slow.items()
        }
        self._modern = {
            **{
                method: partial(_at_once, service.answer)
                for method, service in self._others.items()
                if method not in REMOVED
            },
            "tools/list": self._list_modern,
            "server/discover": self._discover,
            "subscriptions/listen": self.subscriptions.listen,
            "tools/call": self._in_rounds("tools/call", self._call),
            **{
                method: self._in_rounds(method, partial(self._operate, method))
                for method in _ASKING
            },
            **{method: partial(self.rounds.look, method) for method in TASK_METHODS},
        }

    async def serve(self) -> None:
        """Serve until the agent closes its end and its requests are answered."""
        try:
            async with anyio.create_task_group() as tasks:
                self.rounds.run_in(tasks)
                await self._serve()
                tasks.cancel_scope.cancel()
        finally:
            await self.transport.close()

    async def _serve(self) -> None:
        self.transport.offer_to(self._take_call)
        try:
            while (message := await self.transport.receive()) is not None:
                await self._take(message)
            self.subscriptions.end()
            await self.transport.drain(self._requests)
        finally:
            self.abandon()
            await self._requests.until_ended()

    def abandon(self) -> None:
        """End all requests unanswered, when the proxy ends. The servers end afterwards."""
        self.on_abandon()
        self.rounds.leave()
        self._requests.cancel_all()

    async def tools_changed(self, is_told: bool = True) -> None:  # noqa: FBT001, FBT002  a hook
        """Tell the agent that its list of tools is out of date.

        A client whose list is being made is told what its server says (`is_told`) alone: whatever
        else was found is in its list.
        """
        tell = self.notice if is_told or not self._listing else self.subscriptions.notice
        await tell("notifications/tools/list_changed", None)

    async def notice(self, method: str, params: "Mapping[str, Json] | None") -> None:
        """Pass on a notification of a server to whom it concerns."""
        if self._ready:
            await self.transport.notify(method, params)
        await self.subscriptions.notice(method, params)

    async def stream_ended(self) -> None:
        """Tell our front that a server ended the stream of a call before its answer."""
        if self._reads_stream_ends:
            await self.transport.notify(STREAM_ENDED, None)

    async def log_message(self, params: "Mapping[str, Json]") -> None:
        """Pass on a log message of a server, also to requests that want messages so severe."""
        if self._ready:
            await self.transport.notify("notifications/message", params)
        for request_id in self.rounds.wanting(str(params.get("level"))):
            # Our front tells by the id which stream is meant; elsewhere there is one stream.
            tag = {OF_REQUEST: request_id} if self._reads_stream_ends else {}
            await self.transport.notify("notifications/message", {**params, **tag})
            if not (tag or self._ready):
                return

    async def log_own_message(self, params: "Mapping[str, Json]") -> None:
        """Send a warning of the proxy's own, unless the client wants graver messages only."""
        if self._log_level not in _ABOVE_WARNING:
            await self.log_message(params)

    # --- from the agent

    def _take_call(self, message: Message) -> bool:
        """Begin a call. Return False if the message is no call, or nobody has said who calls."""
        if message.method != "tools/call" or message.id is None:
            return False
        if (self._is_shared or "_meta" in message.params) and self._is_modern(message):
            return self._begin_modern(message)
        if not self._ready:
            return False
        self._requests.begin(self._calls, message.id, message.params, message.size)
        return True

    async def _take(self, message: Message | ErrorReply) -> None:
        if isinstance(message, ErrorReply):
            await self._note_unread(message.text)
            error = {"code": message.code, "message": message.text}
            await self.transport.send({"jsonrpc": "2.0", "id": message.id, "error": error})
            return
        if message.id is None:
            await self._take_notification(message)
            return
        await self.capacity.wait(message.size)
        if self._take_call(message):
            return
        if self._is_modern(message):
            await self._take_modern(message)
            return
        answer = await self._immediate(message.method, message.params)
        if answer is not None:
            await self._answer(message, answer)
            return
        await self.transport.until_read()
        # Counted like a call of some size: lists in progress use memory, too.
        self._requests.begin(self._others[message.method], message.id, message.params, SMALL)

    async def _take_notification(self, message: Message) -> None:
        match message.method:
            case "notifications/cancelled":
                self._requests.cancel(message_id(message.params.get("requestId")))
            case "tools/call":
                await self._note_unread("a call without an id")
            case _ if message.method == STREAM_ENDED and self.is_behind_front:
                self._reads_stream_ends = True
                self._is_shared = message.params.get("shared") is True
            case _ if message.method == UNREAD and self.is_behind_front:
                await self._note_unread(str(message.params.get("why")))
            case _:
                pass

    async def _note_unread(self, why: str) -> None:
        """Record a message that is no request, although it may have been meant as a call."""
        await self.note_unserved("unreadable", Ground("unreadable-message", why))

    def _is_modern(self, message: Message) -> bool:
        return self._is_shared or is_modern(message.method, message.params)

    async def _answer(self, message: Message, answer: ServerAnswer) -> None:
        await self._note(message.method, answer)
        await self.transport.send({"jsonrpc": "2.0", "id": message.id, **answer})

    async def _note(self, method: str, answer: ServerAnswer) -> None:
        """Record an answer that refuses a request."""
        error = answer.get("error")
        if isinstance(error, dict):
            rule = _UNSERVED.get(error["code"], "invalid-params")
            await self.note_unserved(method, Ground(rule, str(error["message"])))

    async def _immediate(self, method: str, params: "Mapping[str, Json]") -> ServerAnswer | None:
        """Return the immediate answer, or None if the request is valid and needs a wait."""
        match method:
            case "initialize":
                return await self._initialize(params)
            case "ping":
                return {"result": {}}
            case _ if method in self._others or (method in self._modern and not self._ready):
                return self._objection(method, params)
            case _:
                return fault(METHOD_NOT_FOUND, "Method not found")

    def _objection(self, method: str, params: "Mapping[str, Json]") -> ServerAnswer | None:
        if not self._ready:
            found = caller_of(params)
            return fault(INVALID_PARAMS, "initialize first") if isinstance(found, Caller) else found
        return _fault(method, params)

    async def _take_modern(self, message: Message) -> None:
        """Take a request that names its version itself, or refuse it for its shape."""
        found = caller_of(message.params)
        answer = None if isinstance(found, Caller) else found
        if answer is None and message.method not in self._modern:
            answer = fault(METHOD_NOT_FOUND, "Method not found")
        elif isinstance(found, Caller) and message.method in TASK_METHODS:
            answer = without_tasks(found)
        answer = answer or _fault(message.method, message.params)
        if answer is not None:
            await self._answer(message, answer)
            return
        await self.transport.until_read()
        self._begin_modern(message)

    def _begin_modern(self, message: Message) -> bool:
        """Begin a request that names its version itself. False: it does not say who asks."""
        self._number += 1
        caller = caller_of(message.params, self._number)
        if not isinstance(caller, Caller) or message.id is None:
            return False
        if self._noted != caller.name:
            self._noted = caller.name
            self._note_client(caller.name)
        is_call = message.method == "tools/call"
        service = Service(
            partial(self._answer_modern, message.method, caller, message.id),
            self._turn_away_modern if is_call else _busy,
            _UNFINISHED_CALL if is_call else _UNFINISHED,
        )
        size = message.size if is_call else SMALL
        self._requests.begin(service, message.id, message.params, size)
        return True

    async def _answer_modern(
        self, method: str, caller: Caller, request_id: "MessageId", params: "Mapping[str, Json]"
    ) -> ServerAnswer:
        wrong = self._mismatch(params) if method == "tools/call" else None
        if wrong is not None:
            answer = fault(HEADER_MISMATCH, wrong)
            await self._note(method, answer)
            return answer
        answer = await self._modern[method](caller, request_id, params)
        if isinstance(answer.get("result"), EncodedResult):
            return answer
        return stamped(method, answer, 0 if method == "resources/read" else self.lists_last(method))

    def _mismatch(self, params: "Mapping[str, Json]") -> str | None:
        """Return what is wrong with the headers of a call; our front passes them on."""
        given = object_of(params.get("_meta")).get(HEADERS_KEY)
        if not self._reads_stream_ends or not isinstance(given, dict):
            return None
        said = {
            name: [str(one) for one in values]
            for name, values in given.items()
            if isinstance(values, list)
        }
        paths = self.in_headers(str(params.get("name")))
        wrong = mismatch(params.get("arguments"), paths, said)
        return None if wrong is None else f"{wrong} must be there once and say what the body says"

    async def _turn_away_modern(self, params: "Mapping[str, Json]") -> ServerAnswer:
        return stamped("tools/call", await self._turn_away(params))

    async def _discover(self, *_: object) -> ServerAnswer:
        said = await self.instructions()
        return {"result": discovery(said.text, said.capabilities)}

    def _in_rounds(self, method: str, answer: "CallAnswerer") -> "ModernAnswerer":
        """Return a service whose requests may be answered with questions of servers."""

        async def carry(
            caller: Caller, request_id: "MessageId", params: "Mapping[str, Json]"
        ) -> ServerAnswer:
            work = partial(answer, params, caller)
            return await self.rounds.carry(caller, method, request_id, params, work)

        return carry

    def _note_client(self, name: str) -> None:
        try:
            self.on_client(name)
        except Exception:  # noqa: BLE001  who asks must not depend on what is noted of it
            _log.exception("the client's name could not be noted")

    async def _initialize(self, params: "Mapping[str, Json]") -> ServerAnswer:
        able = params.get("capabilities")
        if not is_introduction(params) or not isinstance(able, dict):
            return fault(
                INVALID_PARAMS, "initialize needs protocolVersion, capabilities and clientInfo"
            )
        if self.transport.client_capabilities is None:
            self.transport.client_capabilities = able
        self._ready = True
        self._note_client(client_name(object_of(params["clientInfo"])))
        said = await self.instructions()
        told = {"capabilities": said.capabilities, "instructions": said.text}
        return {"result": {**introduction(params, said.title), **told}}

    # --- slow requests

    async def _list(self, _: "Mapping[str, Json]") -> ServerAnswer:
        self._listing += 1
        try:
            return {"result": {"tools": [tool_of_before(one) for one in await self.list_tools()]}}
        finally:
            self._listing -= 1

    async def _list_modern(self, *_: object) -> ServerAnswer:
        return {"result": {"tools": await self.list_tools()}}

    async def _list_others(self, kind: ListKind, _: "Mapping[str, Json]") -> ServerAnswer:
        return {"result": {kind: await self.list_others(kind)}}

    async def _operate(
        self, method: Method, params: "Mapping[str, Json]", caller: Caller | None = None
    ) -> ServerAnswer:
        progress = self._progress(params, caller)
        reply = await self.handle_operation(method, params, progress, caller=caller)
        answer = answer_to(method, reply, _named(params))
        error = answer.get("error")
        return _as_given(error) if isinstance(error, dict) else answer

    async def _set_level(self, params: "Mapping[str, Json]") -> ServerAnswer:
        self._log_level = str(params.get("level"))
        await self.set_log_level(self._log_level)
        return {"result": {}}

    async def _call(
        self, params: "Mapping[str, Json]", caller: Caller | None = None
    ) -> ServerAnswer:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not (arguments is None or isinstance(arguments, dict)):
            answer = fault(INVALID_PARAMS, _OF_CALLS)
            await self._note("tools/call", answer)
            return answer
        progress = self._progress(params, caller) if "_meta" in params else None
        reply = await self.handle_call(name, params, progress, caller=caller)
        if isinstance(reply, Answered):
            if caller is None and "structuredContent" in (reply.result.result or ()):
                reply = replace(reply, result=result_of_before(reply.result))
            if reply.result.error is not None:
                return _as_given(reply.result.error)
            written, allowed = reply.result.written, reply.allowed
            has_changed = allowed is not None and bool(allowed.changed)
            may_say_more = not reply.recorded or reply.put_back or reply.result.refused_host
            if written and not ((may_say_more or has_changed) and notes_of(reply)):
                if caller is None:
                    return {"result": EncodedResult(written)}
                if not (_MARKS & (reply.result.result or {}).keys()):
                    return {"result": EncodedResult(stamped_text(written))}
        return {"result": result_of(reply, name)}

    async def _turn_away(self, params: "Mapping[str, Json]") -> ServerAnswer:
        name = str(params.get("name"))
        return {"result": result_of(await self.turn_away(name, params), name)}

    def _progress(
        self, params: "Mapping[str, Json]", caller: Caller | None
    ) -> "ProgressListener | None":
        meta = params.get("_meta")
        if not isinstance(meta, dict) or "progressToken" not in meta:
            return None

        async def pass_on(progress: "Mapping[str, Json]") -> None:
            told = progress if caller is None else self.rounds.progress_of(caller, progress)
            if told is not None:
                await self.transport.notify("notifications/progress", told)

        return pass_on


def _fault(method: str, params: "Mapping[str, Json]") -> ServerAnswer | None:
    if method.endswith("/list") and params.get("cursor") is not None:
        # Lists have one page, so no cursor is ours.
        return fault(INVALID_PARAMS, "unknown cursor")
    if (wrong := fault_of(method, params)) is not None:
        return fault(INVALID_PARAMS, wrong)
    if method == "logging/setLevel" and params.get("level") not in LEVELS:
        return fault(INVALID_PARAMS, f"level must be one of {', '.join(LEVELS)}")
    return None


def _named(params: "Mapping[str, Json]") -> str:
    """Return the resource, prompt or tool that a request names."""
    given = object_of(params.get("ref")) or params
    return str(given.get("uri", given.get("name")))


async def _at_once(
    answer: Answerer, _caller: Caller, _request_id: "MessageId", params: "Mapping[str, Json]"
) -> ServerAnswer:
    return await answer(params)


async def _busy(_: "Mapping[str, Json]") -> ServerAnswer:
    return fault(INTERNAL_ERROR, "too many requests are under way")


def _as_given(error: "Mapping[str, Json]") -> ServerAnswer:
    """Return a server's JSON-RPC error, passed on. What is no such error keeps its text."""
    code, message = error.get("code"), error.get("message")
    is_code = isinstance(code, int) and not isinstance(code, bool)
    if is_code and isinstance(message, str):
        return {"error": error}
    said = message if isinstance(message, str) else _words_of(message)
    odd = {} if is_code or code is None else {"data": {"code": code, "data": error.get("data")}}
    return {"error": {**error, "code": code if is_code else INTERNAL_ERROR, "message": said, **odd}}


def _words_of(message: "Json") -> str:
    """Return the text of an error that is not given as a text."""
    if message is None:
        return "the server answered with an error, and without words"
    try:
        return encode({"": message})[len('{"":') : -len("}\n")].decode("utf-8", "replace")
    except ValueError:
        return "the server answered with an error that cannot be written"
