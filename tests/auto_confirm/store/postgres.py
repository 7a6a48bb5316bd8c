"""A real PostgreSQL server, started by the tests on a Unix socket of its own, without TCP."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.program import PATIENCE

_NOBODY = 65534
_BINARIES = ("/usr/local/bin", *map(str, Path("/usr/lib/postgresql").glob("*/bin")))


def find(program: str) -> str | None:
    """Where a program of PostgreSQL is; Debian keeps them off the path."""
    return shutil.which(program) or shutil.which(program, path=os.pathsep.join(_BINARIES))


class Server:
    """A server that can be killed, and started again on the same files."""

    def __init__(self, place: Path) -> None:
        self._place = place
        # It refuses to run as root.
        self._user = _NOBODY if os.geteuid() == 0 else None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.url = f"postgresql://tests@/postgres?host={place}"

    def prepare(self) -> None:
        """Make its files."""
        if self._user is not None:
            os.chown(self._place, self._user, self._user)
        argv = [find("initdb") or "initdb", "-D", str(self._place / "data"), "-U", "tests"]
        argv += ["-A", "trust", "-E", "UTF8", "--no-locale", "-N"]
        subprocess.run(
            argv, check=True, capture_output=True, user=self._user, group=self._user,
            extra_groups=None if self._user is None else [], cwd=self._place,
        )  # fmt: skip

    def start(self, *options: str) -> None:
        """Start it, and wait until it takes connections."""
        said = ("listen_addresses=", "fsync=off", "log_min_messages=log", *options)
        data = ["-D", str(self._place / "data"), "-k", str(self._place)]
        argv = [find("postgres") or "postgres", *data]
        argv += [word for option in said for word in ("-c", option)]
        self._process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, user=self._user,
            group=self._user, extra_groups=None if self._user is None else [], cwd=self._place,
        )  # fmt: skip
        _wait_until_ready(self._process)
        # A server whose pipe is full waits for ever: copies of databases log checkpoints.
        self._reader = threading.Thread(target=deque, args=(self._process.stderr, 0), daemon=True)
        self._reader.start()

    def crash(self) -> None:
        """End it at once, without a word to its clients. It recovers when it starts again."""
        self.end(signal.SIGQUIT)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it; harmless if it has ended."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None and self._process.stderr is not None:
            self._reader.join()
            self._process.stderr.close()
        self._process = None


@contextmanager
def a_server(*options: str) -> Iterator[Server]:
    """A running server of the block's own."""
    if find("postgres") is None or find("initdb") is None:
        raise FileNotFoundError("postgres")
    # The path of a socket must be short.
    place = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    server = Server(place)
    try:
        server.prepare()
        server.start(*options)
        yield server
    finally:
        server.end()
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a server's maintenance database; the server ends with the block."""
    with a_server() as server:
        yield server.url


def _wait_until_ready(server: subprocess.Popen[str]) -> None:
    told = []
    for line in server.stderr or ():
        told.append(line)
        if "ready to accept connections" in line:
            return
    raise RuntimeError("".join(told))
