"""A registry of packages and a host of git repositories, on this machine and outside the sandbox.

`/simple/` is a Python index, `/npm/` a registry of npm, and every path that holds `.git` is served
by git's own `http-backend`: pushes are accepted.
"""

import base64
import hashlib
import io
import os
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import orjson

HOST: Final = "127.0.0.2"
"""Of this machine. Clients reach `localhost` and 127.0.0.1 past the sandbox's proxy, and fail."""
WHEEL: Final = "tinylib-1.0-py3-none-any.whl"
TARBALL: Final = "tiny-lib-1.0.0.tgz"


class Registry(ThreadingHTTPServer):
    """Answers on the loopback interface, and remembers what it was asked."""

    def __init__(self, repositories: Path) -> None:
        super().__init__((HOST, 0), _Answers)
        self.repositories = repositories
        self.visits: list[str] = []

    @property
    def url(self) -> str:
        """Where it is found."""
        return f"http://{HOST}:{self.server_port}"


@contextmanager
def open_registry(repositories: Path) -> Iterator[Registry]:
    """One that answers until the block ends.

    Args:
        repositories: the directory with the bare repositories.
    """
    server = Registry(repositories)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def make_repository(repositories: Path, name: str) -> Path:
    """A bare repository that accepts pushes over http."""
    made = repositories / name
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(made)], check=True)
    subprocess.run(["git", "-C", str(made), "config", "http.receivepack", "true"], check=True)
    return made


class _Answers(BaseHTTPRequestHandler):
    @property
    def registry(self) -> Registry:
        assert isinstance(self.server, Registry)
        return self.server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        self.registry.visits.append(f"{self.command} {path}")
        if ".git/" in path:
            self._git(path, query)
        elif path == "/simple/tinylib/":
            self._send(f'<a href="/{WHEEL}">{WHEEL}</a>'.encode(), "text/html")
        elif path == f"/{WHEEL}":
            self._send(_wheel())
        elif path == "/npm/tiny-lib":
            self._send(orjson.dumps(_packument(self.registry.url)), "application/json")
        elif path == f"/npm/{TARBALL}":
            self._send(_TARBALL)
        else:
            self.send_error(404)

    def _git(self, path: str, query: str) -> None:
        variables = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.registry.repositories),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_USER": "developer",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answered = subprocess.run(
            ["git", "http-backend"], input=body, env=variables, stdout=subprocess.PIPE, check=True
        ).stdout
        head, _, content = answered.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send(self, content: bytes, kind: str = "application/octet-stream") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
        """Say nothing."""


def _wheel() -> bytes:
    content = io.BytesIO()
    about = "tinylib-1.0.dist-info"
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr("tinylib.py", "ANSWER = 42\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tinylib\nVersion: 1.0\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return content.getvalue()


def _tarball() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in (
            ("package.json", '{"name": "tiny-lib", "version": "1.0.0"}'),
            ("index.js", "module.exports = 42\n"),
        ):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


_TARBALL: Final = _tarball()


def _packument(url: str) -> dict[str, object]:
    digest = base64.b64encode(hashlib.sha512(_TARBALL).digest()).decode()
    version = {
        "name": "tiny-lib",
        "version": "1.0.0",
        "dist": {"tarball": f"{url}/npm/{TARBALL}", "integrity": f"sha512-{digest}"},
    }
    return {"name": "tiny-lib", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
