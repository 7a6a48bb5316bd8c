"""Lines of the agent, read as messages, answers or errors.

This module checks the JSON-RPC envelope only.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.errors import AgentError
from ironcurtain_proxy.jsonrpc.codec import Malformed, MessageId, decode, message_id, recover_id
from ironcurtain_proxy.jsonrpc.pipes import Oversize

if TYPE_CHECKING:
    from ironcurtain_proxy.model.json import Json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
_REJECTED: Final = -1
"""The code of a question that a user rejects."""
_LONGEST: Final = 1000
"""Characters of an error of the client that its server reads."""


class Message(Struct, frozen=True):
    """A request, or a notification."""

    method: str
    params: "Mapping[str, Json]"
    """The parameters; empty if there are none."""
    id: MessageId | None
    """The id of a request; None: the message is a notification."""
    size: int
    """Bytes of its line."""


class RefusedQuestionError(AgentError):
    """The agent's client answered a question with an error."""

    def __init__(self, error: "Json") -> None:
        """Keep the client's code and words."""
        super().__init__("the agent answered with an error")
        said = error if isinstance(error, dict) else {}
        code, message = said.get("code"), said.get("message")
        self.code = code if type(code) is int else _REJECTED
        self.words = message[:_LONGEST] if isinstance(message, str) else ""


class EncodedResult(Struct, frozen=True):
    """A result that is JSON already."""

    text: bytes


class GivenAnswer(Struct, frozen=True):
    """The agent's answer to a request of ours."""

    message: "Mapping[str, Json]"


class ErrorReply(Struct, frozen=True):
    """The error that is sent back for an invalid message."""

    code: int
    text: str
    id: MessageId | None


ParsedMessage: TypeAlias = Message | GivenAnswer | ErrorReply


def read(line: bytes | Oversize) -> ParsedMessage:
    """Read one line. The agent gets an error for a fault, because it would wait for ever."""
    if isinstance(line, Oversize):
        found = recover_id(line.head, line.tail)
        return ErrorReply(
            INVALID_REQUEST, f"message of {line.size} bytes is larger than allowed", found
        )
    message = decode(line)
    if isinstance(message, Malformed):
        code = INVALID_REQUEST if message.is_json else PARSE_ERROR
        return ErrorReply(code, f"invalid message: {message.reason}", message.id)
    return _shape(message, len(line))


def _shape(message: "dict[str, Json]", size: int) -> ParsedMessage:
    method, params = message.get("method"), message.get("params")
    given_id = message.get("id")
    if (
        type(method) is str
        and type(params) is dict
        and type(given_id) is int
        and message.get("jsonrpc") == "2.0"
    ):
        # The usual message, without further checks.
        return Message(method, params, given_id, size)
    request_id = message_id(given_id)
    if message.get("jsonrpc") != "2.0":
        wrong = 'no "jsonrpc": "2.0"'
    elif "id" in message and request_id is None:
        wrong = "id must be a string or a number"
    elif "method" not in message and ("result" in message or "error" in message):
        return GivenAnswer(message)
    elif isinstance(method, str) and (params is None or isinstance(params, dict)):
        return Message(method, params or {}, request_id, size)
    else:
        wrong = "method must be a string and params an object"
    return ErrorReply(INVALID_REQUEST, f"invalid request: {wrong}", request_id)
