"""The wire to the agent: JSON lines on one side, the SDK's messages on the other.

Knows the JSON-RPC envelope. What is not JSON or no JSON-RPC is answered here: the SDK drops it in
silence, and the agent would wait for ever.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from ironcurtain_proxy.wire.codec import (
    Malformed,
    MessageId,
    decode,
    encode,
    message_id,
    recover_id,
)
from ironcurtain_proxy.wire.pipes import LineReader, LineWriter, Oversize

if TYPE_CHECKING:
    from ironcurtain_proxy.agent.calls import CallLane
    from ironcurtain_proxy.model.json import Json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600


class AgentTransport:
    """One connection to an agent. `reader` and `writer` are what the SDK's server wants."""

    def __init__(self, lines: LineReader, out: LineWriter) -> None:
        self._out = out
        self.calls: CallLane | None = None
        """Takes the calls, once the agent has initialized; None: the SDK gets them."""
        self.reader = MessageReader(lines, self)
        self.writer = MessageWriter(out)

    async def notify(self, method: str, params: "Mapping[str, Json] | None") -> None:
        """Send a notification, raw. Nothing happens if the agent has gone."""
        message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self.send(message)

    async def complain(self, code: int, message: str, request_id: MessageId | None) -> None:
        """Answer something that is no request."""
        error = {"code": code, "message": message}
        await self.send({"jsonrpc": "2.0", "id": request_id, "error": error})

    async def send(self, message: Mapping[str, object]) -> None:
        """Send one message. Nothing happens if the agent has gone."""
        try:
            await self._out.send(encode(message))
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
        return await self._shape(message)

    async def _shape(self, message: "dict[str, Json]") -> SessionMessage | None:
        method, params = message.get("method"), message.get("params")
        request_id = message_id(message.get("id"))
        if message.get("jsonrpc") != "2.0":
            wrong = 'no "jsonrpc": "2.0"'
        elif "id" in message and request_id is None:
            wrong = "id must be a string or an integer"
        elif "method" not in message and ("result" in message or "error" in message):
            # An answer to nothing we asked: we send no requests to the agent.
            return None
        elif isinstance(method, str) and isinstance(params, dict | None):
            if self._taken_by_lane(method, params or {}, request_id):
                return None
            return _message(method, params, request_id)
        else:
            wrong = "method must be a string and params an object"
        await self._transport.complain(INVALID_REQUEST, f"invalid request: {wrong}", request_id)
        return None

    def _taken_by_lane(
        self, method: str, params: "dict[str, Json]", request_id: MessageId | None
    ) -> bool:
        calls = self._transport.calls
        if calls is None:
            return False
        if method == "tools/call" and request_id is not None:
            calls.begin(request_id, params)
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

    def __init__(self, out: LineWriter) -> None:
        self._out = out

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message.

        Raises:
            anyio.BrokenResourceError: the agent has closed its end.
        """
        try:
            await self._out.send(encode(_as_json(item.message)))
        except BrokenPipeError:
            raise anyio.BrokenResourceError from None

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


def _as_json(message: mcp_types.JSONRPCMessage) -> Mapping[str, object]:
    if isinstance(message, mcp_types.JSONRPCResponse):
        return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
    return message.model_dump(by_alias=True, mode="json", exclude_unset=True)
