"""The wire to the agent: JSON lines on one side, the SDK's messages on the other.

Knows the JSON-RPC envelope. What is not JSON or no JSON-RPC is answered here: the SDK drops it in
silence, and the agent would wait for ever.
"""

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from ironcurtain_proxy.errors import AgentError
from ironcurtain_proxy.jsonrpc.answers import Answers
from ironcurtain_proxy.jsonrpc.codec import (
    Malformed,
    MessageId,
    decode,
    encode,
    message_id,
    recover_id,
)
from ironcurtain_proxy.jsonrpc.pipes import LineReader, LineWriter, Oversize

if TYPE_CHECKING:
    from ironcurtain_proxy.agent.calls import CallLane
    from ironcurtain_proxy.model.json import Json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603

_OUR_IDS: Final = "ironcurtain-proxy/"
"""Our requests have ids of our own spelling: an answer to anything else is nobody's."""

_MAX_DIGITS: Final = 18

_GONE: Final = "the agent has gone"

DRAIN_SECONDS: Final = 15.0
"""How long calls under way are waited for once the agent has closed its end."""


class AgentTransport:
    """One connection to an agent. `reader` and `writer` are what the SDK's server wants."""

    def __init__(
        self, lines: LineReader, out: LineWriter, *, drain_seconds: float = DRAIN_SECONDS
    ) -> None:
        """Take over two pipes.

        Args:
            lines: what the agent sends.
            out: where answers go.
            drain_seconds: how long calls are waited for once the agent has closed its end.
        """
        self._out = out
        self._drain_seconds = drain_seconds
        self.calls: CallLane | None = None
        """Takes the calls, once the agent has initialized; None: the SDK gets them."""
        self.client_capabilities: Mapping[str, Json] | None = None
        """What the agent's client declared in its first `initialize`; None: there was none yet."""
        self._answers = Answers[Mapping[str, "Json"]]()
        self._is_gone = False
        self._asked: set[MessageId] = set()
        """The requests that the SDK has and has not answered."""
        self._all_answered = anyio.Event()
        self.reader = MessageReader(lines, self)
        self.writer = MessageWriter(out, self)

    async def notify(self, method: str, params: "Mapping[str, Json] | None") -> None:
        """Send a notification, raw. Nothing happens if the agent has gone."""
        message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self.send(message)

    async def request(
        self, method: str, params: "Mapping[str, Json]", seconds: float
    ) -> "Mapping[str, Json]":
        """Ask the agent's client something. If the wait ends early, it is told so.

        Returns:
            The raw `result`.

        Raises:
            AgentError: it answered with an error, or with what is no answer, or has gone.
            TimeoutError: it did not answer within `seconds`.
        """
        if self._is_gone:
            raise AgentError(_GONE)
        number = self._answers.expect()
        request_id = f"{_OUR_IDS}{number}"
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        try:
            self._out.write(encode(message))
        except (BrokenPipeError, ValueError):
            self._answers.forget(number)
            raise AgentError("the agent could not be asked") from None
        try:
            return await self._answers.wait(number, seconds)
        except TimeoutError:
            self._cancel(request_id, "the deadline has passed")
            raise
        except anyio.get_cancelled_exc_class():
            self._cancel(request_id, "the question was withdrawn")
            raise

    def take_answer(self, message: "Mapping[str, Json]") -> None:
        """Hand an answer to who waits for it; one to nothing we asked is dropped."""
        request_id = message.get("id")
        if not isinstance(request_id, str) or not request_id.startswith(_OUR_IDS):
            return
        digits = request_id[len(_OUR_IDS) :]
        if not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
            return
        result, error = message.get("result"), message.get("error")
        if isinstance(result, dict) and error is None:
            self._answers.settle(int(digits), result)
        else:
            self._answers.fail(int(digits), AgentError("the agent answered with an error"))

    def end(self) -> None:
        """The agent has closed its end: nothing is answered any more."""
        self._is_gone = True
        self._answers.fail_all(AgentError(_GONE))

    def note_request(self, request_id: MessageId) -> None:
        """The SDK has this request now."""
        self._asked.add(request_id)

    def note_answer(self, request_id: object) -> None:
        """The SDK has answered, or the agent has withdrawn its request."""
        known = message_id(request_id)
        if known is not None:
            self._asked.discard(known)
        if not self._asked:
            self._all_answered.set()

    async def finish(self) -> None:
        """The agent sends no more: answer what it has asked, in a bounded time.

        A client that has gone altogether reads nothing either, which shows, and is not waited for.
        """
        self.end()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_gone, tasks.cancel_scope)
            with anyio.move_on_after(self._drain_seconds):
                await self._until_answered()
                tasks.cancel_scope.cancel()
            if self.calls is not None:
                await self.calls.give_up()
            tasks.cancel_scope.cancel()

    async def _until_answered(self) -> None:
        while self._asked:
            self._all_answered = anyio.Event()
            await self._all_answered.wait()
        if self.calls is not None:
            await self.calls.until_idle()
        await self._out.flush()

    async def _until_gone(self, scope: anyio.CancelScope) -> None:
        await self._out.until_closed()
        scope.cancel()

    def _cancel(self, request_id: str, reason: str) -> None:
        params = {"requestId": request_id, "reason": reason}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        with suppress(BrokenPipeError):
            self._out.write(encode(message))

    async def complain(self, code: int, message: str, request_id: MessageId | None) -> None:
        """Answer something that is no request."""
        error = {"code": code, "message": message}
        await self.send({"jsonrpc": "2.0", "id": request_id, "error": error})

    def post(self, message: Mapping[str, object]) -> None:
        """Send one message without waiting. Nothing happens if the agent has gone."""
        with suppress(BrokenPipeError):
            self._out.write(_encoded(message))

    async def send(self, message: Mapping[str, object]) -> None:
        """Send one message. Nothing happens if the agent has gone."""
        try:
            await self._out.send(_encoded(message))
        except BrokenPipeError:
            return


class MessageReader:
    """The SDK's read stream: what is no JSON-RPC message never comes out of it."""

    def __init__(self, lines: LineReader, transport: AgentTransport) -> None:
        self._lines = lines
        self._transport = transport

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            line = await self._lines.receive()
            if line is None:
                await self._transport.finish()
                raise StopAsyncIteration
            message = await self._read(line)
            if message is not None:
                return message

    async def receive(self) -> SessionMessage:
        """The next message.

        Raises:
            anyio.EndOfStream: the agent has closed its end.
        """
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """Stop reading."""
        self._transport.end()
        self._lines.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _read(self, line: bytes | Oversize) -> SessionMessage | None:
        if isinstance(line, Oversize):
            found = recover_id(line.head, line.tail)
            await self._transport.complain(
                INVALID_REQUEST, f"message of {line.size} bytes is larger than allowed", found
            )
            return None
        message = decode(line)
        if isinstance(message, Malformed):
            code = INVALID_REQUEST if message.is_json else PARSE_ERROR
            await self._transport.complain(code, f"invalid message: {message.reason}", message.id)
            return None
        return await self._shape(message, len(line))

    async def _shape(self, message: "dict[str, Json]", size: int) -> SessionMessage | None:
        method, params = message.get("method"), message.get("params")
        request_id = message_id(message.get("id"))
        if message.get("jsonrpc") != "2.0":
            wrong = 'no "jsonrpc": "2.0"'
        elif "id" in message and request_id is None:
            wrong = "id must be a string or an integer"
        elif "method" not in message and ("result" in message or "error" in message):
            self._transport.take_answer(message)
            return None
        elif isinstance(method, str) and isinstance(params, dict | None):
            return await self._dispatch(method, params, request_id, size)
        else:
            wrong = "method must be a string and params an object"
        await self._transport.complain(INVALID_REQUEST, f"invalid request: {wrong}", request_id)
        return None

    async def _dispatch(
        self,
        method: str,
        params: "dict[str, Json] | None",
        request_id: MessageId | None,
        size: int,
    ) -> SessionMessage | None:
        given = params or {}
        if method == "initialize" and request_id is not None:
            self._note_capabilities(given)
        if await self._taken_by_lane(method, given, request_id, size):
            return None
        if request_id is not None:
            self._transport.note_request(request_id)
        elif method == "notifications/cancelled":
            self._transport.note_answer(given.get("requestId"))
        return _message(method, params, request_id)

    def _note_capabilities(self, params: "dict[str, Json]") -> None:
        if self._transport.client_capabilities is None:
            declared = params.get("capabilities")
            self._transport.client_capabilities = declared if isinstance(declared, dict) else {}

    async def _taken_by_lane(
        self, method: str, params: "dict[str, Json]", request_id: MessageId | None, size: int
    ) -> bool:
        calls = self._transport.calls
        if calls is None:
            return False
        if method == "tools/call" and request_id is not None:
            await calls.room.wait(size)
            calls.begin(request_id, params, size)
            return True
        return method == "notifications/cancelled" and calls.cancel(params.get("requestId"))


def _message(
    method: str, params: "dict[str, Json] | None", request_id: MessageId | None
) -> SessionMessage:
    # `model_construct`: the envelope was checked above, and pydantic would copy the arguments.
    if request_id is None:
        return SessionMessage(
            mcp_types.JSONRPCNotification.model_construct(
                jsonrpc="2.0", method=method, params=params
            )
        )
    return SessionMessage(
        mcp_types.JSONRPCRequest.model_construct(
            jsonrpc="2.0", id=request_id, method=method, params=params
        )
    )


class MessageWriter:
    """The SDK's write stream: results leave as they are, without a second validation."""

    def __init__(self, out: LineWriter, transport: AgentTransport) -> None:
        self._out = out
        self._transport = transport

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message.

        Raises:
            anyio.BrokenResourceError: the agent has closed its end.
        """
        try:
            await self._out.send(_encoded(_as_json(item.message)))
        except BrokenPipeError:
            raise anyio.BrokenResourceError from None
        finally:
            if isinstance(item.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
                self._transport.note_answer(item.message.id)

    async def aclose(self) -> None:
        """Let what was sent go out, but do not wait for an agent that does not read."""
        with anyio.move_on_after(1, shield=True):
            await self._out.drain_and_close()
        self._out.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


def _encoded(message: Mapping[str, object]) -> bytes:
    """One line; an error in its place if it is something that cannot be written.

    A server's answer can be nested just deep enough to be read and too deep to be written again:
    that must cost its own call and nothing else.
    """
    try:
        return encode(message)
    except ValueError:
        error = {"code": INTERNAL_ERROR, "message": "the answer cannot be written as JSON"}
        return encode({"jsonrpc": "2.0", "id": message.get("id"), "error": error})


def _as_json(message: mcp_types.JSONRPCMessage) -> Mapping[str, object]:
    if isinstance(message, mcp_types.JSONRPCResponse):
        return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
    return message.model_dump(by_alias=True, mode="json", exclude_unset=True)
