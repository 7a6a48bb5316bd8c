"""A reviewer process that is an MCP server: each question calls its tool.

`json_lines` checks the form of answers. A call has one result: after an invalid one, the next
reviewer is asked, and an answer to another question does not count.

The process is untrusted. Sampling, elicitation and roots are not offered to it.
"""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.auto_confirm.briefing import View
from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.auto_confirm.reviewers.json_lines import (
    MAX_ANSWER,
    NOT_AN_OBJECT,
    NOTHING_OPEN,
    TOO_LONG,
    NoAnswer,
    ParsedOutput,
    ProcessAnswer,
    read_answer,
    read_object,
    review_fields,
)
from ironcurtain_proxy.jsonrpc.codec import encode, message_id, recover_id
from ironcurtain_proxy.jsonrpc.pipes import Oversize
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.version import VERSION

PROTOCOL_VERSION: Final = "2025-11-25"
"""The offered protocol version; any version in the answer is accepted."""

MAX_LISTING: Final = 1 << 20
"""Bytes of a page of tools. Other tools than its own are not kept."""

MAX_PAGES: Final = 100

_METHOD_NOT_FOUND: Final = -32601
_NO_RESULT: Final = "it refuses the call"
_FAILED: Final = "it says that it has failed"
_NO_FIELDS: Final = "its result is neither an object nor one text that is a JSON object"
_OTHER: Final = "it answers another question than it was asked"
_WRAPPED: Final = frozenset({"result"})
"""The keys of the object in which servers wrap a text result."""


class CallDialect:
    """A conversation with an MCP server. A `Dialect`."""

    max_line: Final = MAX_LISTING

    def __init__(self, token: str, tool: str) -> None:
        """Begin a conversation, without sending anything.

        Args:
            token: the token of the process.
            tool: the tool to call.
        """
        self._token = token
        self._tool = tool
        self._open = False
        self._calls: dict[int, str] = {}
        """The questions, by the ids of their calls."""
        self._cancelled: set[int] = set()
        """Cancelled calls without a result; some servers still send one."""
        self._last_id = 0
        self._step = ""
        """The method of the handshake's last request."""
        self._pages = 0

    @property
    def is_open(self) -> bool:
        """Whether the server has listed the tool."""
        return self._open

    def hello(self) -> bytes:
        """Return the request `initialize`."""
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "ironcurtain-proxy", "version": VERSION},
        }
        return self._next_step("initialize", params)

    def question(self, escalation: Escalation, decision: EngineDecision, view: View) -> bytes:
        """Write a `tools/call` with the fields of a question as its arguments."""
        fields = review_fields(escalation, decision, view)
        line = self._request("tools/call", {"name": self._tool, "arguments": fields})
        self._calls[self._last_id] = escalation.id
        return line

    def release(self, identifier: str) -> bytes:
        """Write `notifications/cancelled`, if the call has had no result."""
        for request_id, question in self._calls.items():
            if question == identifier:
                del self._calls[request_id]
                self._cancelled.add(request_id)
                reason = "the question needs no answer any more"
                return _notification(
                    "notifications/cancelled", {"requestId": request_id, "reason": reason}
                )
        return b""

    def hear(self, line: bytes | Oversize) -> ParsedOutput:
        """Take in one message."""
        if isinstance(line, Oversize):
            return self._unreadable(TOO_LONG, recover_id(line.head, line.tail))
        if len(line) > (MAX_ANSWER if self._open else MAX_LISTING):
            return self._unreadable(TOO_LONG, recover_id(line, line))
        message = read_object(line)
        if message is None:
            return self._unreadable(NOT_AN_OBJECT, recover_id(line))
        if "method" in message:
            return _of_its_own_accord(message)
        if self._open:
            return self._result_of_call(message)
        return self._result_of_step(message)

    # --- the handshake ---------------------------------------------------------------------------

    def _result_of_step(self, message: Mapping[str, object]) -> ParsedOutput:
        if not self._is_step(message.get("id")):
            return ParsedOutput(answer=NoAnswer(NOTHING_OPEN))
        result = _result(message)
        if result is None:
            return ParsedOutput(failed=f"it refuses {self._step}")
        if self._step == "initialize":
            return ParsedOutput(reply=_notification("notifications/initialized") + self._page())
        return self._look_for_tool(result)

    def _look_for_tool(self, result: Mapping[str, object]) -> ParsedOutput:
        if _has_tool(result, self._tool):
            self._open = True
            return ParsedOutput()
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            return ParsedOutput(failed=f"it offers no tool {self._tool!r}")
        if self._pages == MAX_PAGES:
            return ParsedOutput(failed=f"it lists more than {MAX_PAGES} pages of tools")
        return ParsedOutput(reply=self._page(cursor))

    def _page(self, cursor: str = "") -> bytes:
        self._pages += 1
        return self._next_step("tools/list", {"cursor": cursor} if cursor else {})

    def _next_step(self, method: str, params: Mapping[str, object]) -> bytes:
        self._step = method
        return self._request(method, params)

    def _is_step(self, request_id: object) -> bool:
        return type(request_id) is int and request_id == self._last_id

    # --- the calls -------------------------------------------------------------------------------

    def _result_of_call(self, message: Mapping[str, object]) -> ParsedOutput:
        request_id = message.get("id")
        if type(request_id) is int and request_id in self._cancelled:
            self._cancelled.remove(request_id)
            return ParsedOutput()
        question = self._end_call(request_id)
        if not question:
            return ParsedOutput(answer=NoAnswer(NOTHING_OPEN))
        answer = self._answer(message)
        if isinstance(answer, ProcessAnswer) and answer.id != question:
            answer = NoAnswer(_OTHER)
        return ParsedOutput(answer=answer, over=question)

    def _answer(self, message: Mapping[str, object]) -> ProcessAnswer | NoAnswer:
        result = _result(message)
        if result is None:
            return NoAnswer(_NO_RESULT)
        if result.get("isError", False) is not False:
            return NoAnswer(_FAILED)
        fields = _fields(result)
        return NoAnswer(_NO_FIELDS) if fields is None else read_answer(fields, self._token)

    def _unreadable(self, reason: str, request_id: object) -> ParsedOutput:
        if not self._open and self._is_step(request_id):
            return ParsedOutput(failed=f"its answer to {self._step} cannot be read: {reason}")
        return ParsedOutput(answer=NoAnswer(reason), over=self._end_call(request_id))

    def _end_call(self, request_id: object) -> str:
        """End a call, and return its question, or "" if there is no such call."""
        return self._calls.pop(request_id, "") if type(request_id) is int else ""

    def _request(self, method: str, params: Mapping[str, object]) -> bytes:
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        return encode(message)


def _of_its_own_accord(message: Mapping[str, object]) -> ParsedOutput:
    """Answer a request of the process; its notifications are ignored."""
    if "id" not in message:
        return ParsedOutput()
    refused = NoAnswer("it asks for what it is not offered")
    request_id = message_id(message["id"])
    if request_id is None:
        return ParsedOutput(answer=refused)
    reply: dict[str, object] = {"jsonrpc": "2.0", "id": request_id}
    if message["method"] == "ping":
        return ParsedOutput(reply=encode({**reply, "result": {}}))
    error = {"code": _METHOD_NOT_FOUND, "message": "Method not found"}
    return ParsedOutput(answer=refused, reply=encode({**reply, "error": error}))


def _notification(method: str, params: Mapping[str, object] | None = None) -> bytes:
    message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
    return encode(message if params is None else {**message, "params": params})


def _result(message: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the answer in a result, or None for an error or an unreadable one."""
    result = message.get("result")
    return result if isinstance(result, dict) and message.get("error") is None else None


def _has_tool(page: Mapping[str, object], name: str) -> bool:
    tools = page.get("tools")
    return isinstance(tools, list) and any(
        isinstance(tool, dict) and tool.get("name") == name for tool in tools
    )


def _fields(result: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the object in a result, or None if there is not exactly one."""
    structured = result.get("structuredContent")
    if isinstance(structured, dict) and structured.keys() != _WRAPPED:
        return structured
    content = result.get("content")
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return None
    text = content[0].get("text")
    if content[0].get("type") != "text" or not isinstance(text, str):
        return None
    # A lone surrogate is no valid text.
    return read_object(text.encode("utf-8", "surrogatepass"))
