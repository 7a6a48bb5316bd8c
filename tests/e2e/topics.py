"""A server of topics as ntfy is one: messages are published, and streamed to who listens.

`POST /` publishes JSON with its topic, `POST /TOPIC` a text, and `GET /TOPIC/json` streams lines.
"""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson

from ironcurtain_proxy.model.values import Json
from tests.e2e.raw_client import Message
from tests.program import PATIENCE, wait_until


class Topics(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.published: queue.Queue[Message] = queue.Queue()
        self.listening: list[tuple[str, queue.Queue[str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def next_message(self) -> Message:
        """The next message that was published as JSON."""
        return self.published.get(timeout=PATIENCE)

    def publish(self, topic: str, text: str) -> None:
        """Anybody's message, for all that listen. Waits until somebody does."""
        for heard in wait_until(lambda: [to for name, to in self.listening if name == topic]):
            heard.put(text)


@contextmanager
def open_topics() -> Iterator[Topics]:
    """A server of topics on this machine, until the block ends."""
    server = Topics()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        for _, to in server.listening:
            to.put("")
        server.shutdown()
        thread.join()
        server.server_close()


class _Answers(BaseHTTPRequestHandler):
    @property
    def topics(self) -> Topics:
        assert isinstance(self.server, Topics)
        return self.server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/":
            self.topics.published.put(orjson.loads(body))
        else:
            self.topics.publish(self.path.strip("/"), body.decode())
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_GET(self) -> None:
        topic = self.path.strip("/").removesuffix("/json")
        self.send_response(200)
        self.end_headers()
        self._line({"event": "open", "topic": topic})
        mine: queue.Queue[str] = queue.Queue()
        self.topics.listening.append((topic, mine))
        while text := mine.get():
            self._line({"event": "message", "topic": topic, "message": text})

    def _line(self, event: dict[str, Json]) -> None:
        self.wfile.write(orjson.dumps(event) + b"\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
        """Say nothing."""
