"""A web server on this machine, outside every sandbox."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Website(ThreadingHTTPServer):
    """Says hello to everyone on this machine, and remembers that they came.

    Answers 403 at `/forbidden`, and sends on whoever asks for `/to/URL`.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hello)
        self.visits: list[str] = []

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server_port}/"


class Hello(BaseHTTPRequestHandler):
    """One page, one that nobody may see, and all that lead elsewhere."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Website)
        self.server.visits.append(self.path)
        elsewhere = self.path.removeprefix("/to/")
        if elsewhere != self.path:
            self.send_response(302)
            self.send_header("Location", elsewhere)
        else:
            self.send_response(403 if self.path == "/forbidden" else 200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
        """Say nothing."""


@contextmanager
def open_website() -> Iterator[Website]:
    """One that answers until the block ends."""
    server = Website()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
