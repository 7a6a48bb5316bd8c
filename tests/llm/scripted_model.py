"""A server that answers by a script, in the forms of OpenAI, Anthropic and Google."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import orjson
from msgspec import Struct

from tests.program import PATIENCE


class Step(Struct, frozen=True):
    """What the server does with one request."""

    text: str | None = '{"decision":"approve","reasoning":"asked for"}'
    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    hangs: bool = False
    drips: bool = False
    closes: bool = False
    finish: str = "stop"


def says(decision: str, reasoning: str = "because") -> Step:
    return Step(orjson.dumps({"decision": decision, "reasoning": reasoning}).decode())


@dataclass
class ScriptedModel:
    """A server on a port of its own."""

    act: Callable[[dict[str, object]], Step] = lambda _: Step()
    requests: list[tuple[str, dict[str, str], dict[str, object]]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def prompts(self) -> list[str]:
        """Everything that was ever sent to it, as text."""
        return [orjson.dumps(body).decode() for _, _, body in self.requests]


def _reply(path: str, step: Step) -> bytes:
    if step.body is not None:
        return step.body
    if step.status != 200:
        return orjson.dumps({"error": {"message": "scripted fault", "type": "server_error"}})
    if path.endswith("/messages"):
        return orjson.dumps(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "x",
                "content": [{"type": "text", "text": step.text}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 7, "output_tokens": 3},
            }
        )
    if path.partition("?")[0].endswith(":generateContent"):
        content = {"role": "model", "parts": [{"text": step.text}]}
        return orjson.dumps(
            {
                "candidates": [{"content": content, "finishReason": step.finish.upper()}],
                "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3},
            }
        )
    message = {"role": "assistant", "content": step.text}
    return orjson.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "finish_reason": step.finish, "message": message}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    )


@contextmanager
def scripted_model(act: Callable[[dict[str, object]], Step] | Step) -> Iterator[ScriptedModel]:
    """Serve until the block ends."""
    model = ScriptedModel(act=(lambda _: act) if isinstance(act, Step) else act)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            size = int(self.headers.get("content-length", 0))
            body = orjson.loads(self.rfile.read(size) or b"{}")
            model.requests.append((self.path, dict(self.headers), body))
            step = model.act(body)
            self.close_connection = True
            if step.closes:
                return
            if step.hangs:
                model.released.wait(PATIENCE)
                return
            payload = _reply(self.path, step)
            self.send_response(step.status)
            self.send_header("content-type", "application/json")
            # It closes: a client that was not told would send its next question into the void.
            self.send_header("connection", "close")
            for name, value in step.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            size = 1 if step.drips else len(payload) or 1
            with suppress(OSError):  # the client has had enough
                for at in range(0, len(payload), size):
                    self.wfile.write(payload[at : at + size])
                    if step.drips and model.released.wait(0.05):
                        return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield model
    finally:
        model.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
