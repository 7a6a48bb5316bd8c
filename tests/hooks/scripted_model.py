"""A scripted model for real clients: one tool call a turn, and then the text "done".

Only what the client asks of a model over HTTP is here; what it does with the calls is its own.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, TypeAlias

import orjson

from ironcurtain_proxy.model.values import Json

Block: TypeAlias = dict[str, Json]

_USAGE: Final[Block] = {"input_tokens": 1, "output_tokens": 1}


class ScriptedModel:
    """The script, and what the client sent back."""

    def __init__(self, calls: Sequence[tuple[str, Block]]) -> None:
        self.calls = list(calls)
        self.results: list[tuple[bool, str]] = []
        """Whether each call failed, and its result."""
        self.address = ""
        self.before: dict[int, Callable[[], object]] = {}
        """What the test does before a turn is answered."""

    def turn(self, number: int) -> tuple[str, Block] | None:
        """Return the call of a turn; None: the text comes."""
        self.before.pop(number, bool)()
        return self.calls[number] if number < len(self.calls) else None


def answer_claude(model: ScriptedModel, path: str, body: Block) -> tuple[bytes, str]:
    """Answer as the Messages API does."""
    if "count_tokens" in path or "/v1/messages" not in path:
        return b'{"input_tokens":1}', "application/json"
    results = [
        block
        for message in _objects(body["messages"])
        if message["role"] == "user"
        for block in _objects(message["content"])
        if block.get("type") == "tool_result"
    ]
    told = [(one.get("is_error") is True, _text(one.get("content"))) for one in results]
    # The client may not have a server's tools yet: the call is made again.
    model.results = [one for one in told if "No such tool available: mcp__" not in one[1]]
    call = model.turn(len(model.results)) if body.get("tools") else None
    block: Block = {"type": "text", "text": "done"}
    if call is not None:
        name = f"toolu_{len(results):04d}"
        block = {"type": "tool_use", "id": name, "name": call[0], "input": call[1]}
    message: Block = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "usage": _USAGE,
        "model": body.get("model"),
        "content": [block],
        "stop_reason": "end_turn" if call is None else "tool_use",
        "stop_sequence": None,
    }
    if not body.get("stream"):
        return orjson.dumps(message), "application/json"
    return _events(message, block), "text/event-stream"


def answer_codex(model: ScriptedModel, _path: str, body: Block) -> tuple[bytes, str]:
    """Answer as the Responses API does."""
    results = [
        one for one in _objects(body.get("input")) if str(one.get("type")).endswith("_output")
    ]
    model.results = [(False, orjson.dumps(one.get("output")).decode()) for one in results]
    call, number = model.turn(len(results)), len(results)
    item: Block = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "done", "annotations": []}],
    }
    if call is not None:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {"name": call[0], "arguments": orjson.dumps(call[1]).decode()}
    usage: Block = {**_USAGE, "total_tokens": 2}
    usage |= {"input_tokens_details": None, "output_tokens_details": None}
    response: Block = {"id": f"resp_{number}"}
    events: list[Block] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "usage": usage}},
    ]
    return _streamed(events), "text/event-stream"


def answer_gemini(model: ScriptedModel, path: str, body: Block) -> tuple[bytes, str]:
    """Answer as the Gemini API does."""
    if "enerateContent" not in path:
        return b'{"totalTokens":5}', "application/json"
    results = [
        part["functionResponse"]
        for content in _objects(body.get("contents"))
        for part in _objects(content.get("parts"))
        if "functionResponse" in part
    ]
    model.results = [(False, orjson.dumps(one).decode()) for one in results]
    call = model.turn(len(results)) if body.get("tools") else None
    part: Block = {"text": "done"}
    if call is not None:
        part = {"functionCall": {"name": call[0], "args": call[1]}}
    content: Block = {"role": "model", "parts": [part]}
    usage: Block = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    answer: Block = {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
        "modelVersion": "x",
    }
    if "stream" in path:
        return b"data: " + orjson.dumps(answer) + b"\n\n", "text/event-stream"
    return orjson.dumps(answer), "application/json"


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "".join([str(one.get("text", "")) for one in _objects(content)])


def _objects(found: Json) -> list[Block]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


@contextmanager
def serving(
    calls: Sequence[tuple[str, Block]],
    answer: Callable[[ScriptedModel, str, Block], tuple[bytes, str]] = answer_claude,
) -> Iterator[ScriptedModel]:
    """Serve a scripted model on this machine."""
    model = ScriptedModel(calls)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._send(b"{}", "application/json")

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            self._send(*answer(model, self.path, orjson.loads(raw or b"{}")))

        def _send(self, raw: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _events(message: Block, block: Block) -> bytes:
    if block["type"] == "text":
        empty: Block = {"type": "text", "text": ""}
        delta: Block = {"type": "text_delta", "text": block["text"]}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
    events: list[Block] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
            "usage": _USAGE,
        },
        {"type": "message_stop"},
    ]
    return _streamed(events)


def _streamed(events: list[Block]) -> bytes:
    lines = [f"event: {one['type']}\ndata: {orjson.dumps(one).decode()}\n\n" for one in events]
    return "".join(lines).encode()
