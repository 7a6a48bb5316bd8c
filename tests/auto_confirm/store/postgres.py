"""A real PostgreSQL server, started by the tests on a Unix socket of its own, without TCP."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534
_BINARIES = ("/usr/local/bin", *map(str, Path("/usr/lib/postgresql").glob("*/bin")))


def find(program: str) -> str | None:
    """Where a program of PostgreSQL is; Debian keeps them off the path."""
    return shutil.which(program) or shutil.which(program, path=os.pathsep.join(_BINARIES))


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a server's maintenance database; the server ends with the block."""
    postgres, initdb = find("postgres"), find("initdb")
    if postgres is None or initdb is None:
        raise FileNotFoundError("postgres")
    # The path of a socket must be short.
    place = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    user: int | None = None
    if os.geteuid() == 0:
        # It refuses to run as root.
        user = _NOBODY
        os.chown(place, user, user)
    data = place / "data"
    try:
        subprocess.run(
            [initdb, "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"],
            check=True,
            capture_output=True,
            timeout=50,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            cwd=place,
        )
        options = ("listen_addresses=", "fsync=off", "log_min_messages=log")
        command = [postgres, "-D", str(data), "-k", str(place)]
        command += [word for option in options for word in ("-c", option)]
        with subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            cwd=place,
        ) as server:
            try:
                _wait_until_ready(server)
                # A server whose pipe is full waits for ever: copies of databases log checkpoints.
                threading.Thread(target=deque, args=(server.stderr, 0), daemon=True).start()
                yield f"postgresql://tests@/postgres?host={place}"
            finally:
                server.terminate()
                try:
                    server.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    server.kill()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _wait_until_ready(server: subprocess.Popen[str]) -> None:
    told = []
    for line in server.stderr or ():
        told.append(line)
        if "ready to accept connections" in line:
            return
    raise RuntimeError("".join(told))
