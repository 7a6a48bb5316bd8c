"""A scripted model for the real Claude Code: one tool call a turn, and then the text "done".

Only what the client asks of a model over HTTP is here; what it does with the calls is its own.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, TypeAlias

import orjson

from ironcurtain_proxy.model.json import Json

Block: TypeAlias = dict[str, Json]

_USAGE: Final[Block] = {"input_tokens": 1, "output_tokens": 1}


class ScriptedModel:
    """The script, and what the client sent back."""

    def __init__(self, calls: Sequence[tuple[str, Block]]) -> None:
        self.calls = list(calls)
        self.results: list[tuple[bool, str]] = []
        """Whether each call failed, and its result."""
        self.address = ""
        self.before_turn: dict[int, threading.Event] = {}
        """A turn that waits until the test has done something."""
        self.reached: dict[int, threading.Event] = {}
        """A turn whose beginning the test waits for."""

    def turn(self, body: Block) -> tuple[Block, str]:
        """Return the block of the next turn, and why it stops."""
        blocks = [
            block
            for message in _objects(body["messages"])
            if message["role"] == "user"
            for block in _objects(message["content"])
            if block.get("type") == "tool_result"
        ]
        self.results = [(one.get("is_error") is True, _text(one.get("content"))) for one in blocks]
        number = len(blocks)
        if number in self.reached:
            self.reached[number].set()
        if number in self.before_turn:
            self.before_turn[number].wait(60)
        if not body.get("tools") or number >= len(self.calls):
            return {"type": "text", "text": "done"}, "end_turn"
        name, given = self.calls[number]
        found: Block = {
            "type": "tool_use",
            "id": f"toolu_{number:04d}",
            "name": name,
            "input": given,
        }
        return found, "tool_use"


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "".join([str(one.get("text", "")) for one in _objects(content)])


def _objects(found: Json) -> list[Block]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


@contextmanager
def serving(calls: Sequence[tuple[str, Block]]) -> Iterator[ScriptedModel]:
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
            if "count_tokens" in self.path or "/v1/messages" not in self.path:
                self._send(b'{"input_tokens":1}', "application/json")
                return
            body = orjson.loads(raw)
            block, stop = model.turn(body)
            message = {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "usage": _USAGE,
                "model": body.get("model"),
                "content": [block],
                "stop_reason": stop,
                "stop_sequence": None,
            }
            if not body.get("stream"):
                self._send(orjson.dumps(message), "application/json")
                return
            self._send(_events(message, block, stop), "text/event-stream")

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


def _events(message: Block, block: Block, stop: str) -> bytes:
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
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": _USAGE,
        },
        {"type": "message_stop"},
    ]
    lines = [f"event: {one['type']}\ndata: {orjson.dumps(one).decode()}\n\n" for one in events]
    return "".join(lines).encode()
