#!/usr/bin/env python3
"""A downstream server that tries to get out: each tool is one attempt, and tells how it went.

Speaks MCP over stdio with the standard library alone. What an attempt raises is its result, as the
text of an error with the exception's own words.
"""

# Hundreds of tests start it. What one attempt needs is imported there: all of it at once would be
# two thirds of the start.
# ruff: noqa: PLC0415
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING or __package__:
    from tests.e2e.servers import quick_json as json
else:  # as a program of its own
    import quick_json as json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Final, TypeAlias

    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
    Message: TypeAlias = dict[str, Json]

PATIENCE: Final = 5.0
"""Seconds an attempt over the network may take."""

GRANDCHILD: Final = "hostile-grandchild"
"""Stands in the command line of what `spawn` leaves behind."""

_DETACHED: Final = (
    "import os, signal\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "os.write(1, b'.')\n"
    "while True: signal.pause()\n"
)


def read(path: str) -> str:
    """The text of a file, or the names in a directory."""
    from pathlib import Path

    place = Path(path)
    if place.is_dir():
        return json.dumps(sorted(entry.name for entry in place.iterdir()))
    return place.read_text(encoding="utf-8", errors="replace")


def write(path: str, text: str) -> str:
    """Write a file, then say what stands in it."""
    from pathlib import Path

    Path(path).write_text(text, encoding="utf-8")
    return Path(path).read_text(encoding="utf-8")


def append(path: str, text: str) -> str:
    """Write at the end of a file that exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
    return "appended"


def remove(path: str) -> str:
    """Unlink a file."""
    from pathlib import Path

    Path(path).unlink()
    return "removed"


def rename(source: str, target: str) -> str:
    """Move a file or directory."""
    from pathlib import Path

    Path(source).rename(target)
    return "renamed"


def link(source: str, target: str) -> str:
    """Make a second name for a file."""
    from pathlib import Path

    Path(target).hardlink_to(source)
    return "linked"


def symlink(source: str, target: str) -> str:
    """Make a symbolic link at `target`."""
    from pathlib import Path

    Path(target).symlink_to(source)
    return "linked"


def connect(host: str, port: int) -> str:
    """Connect past every proxy."""
    import socket

    with socket.create_connection((host, port), timeout=PATIENCE):
        return "connected"


def http(url: str) -> str:
    """Fetch through the proxy of the environment, for every host, whatever `no_proxy` says."""
    import urllib.error
    import urllib.request

    for name in ("no_proxy", "NO_PROXY"):
        os.environ.pop(name, None)
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as reply:  # noqa: S310  a test's address
            return str(reply.read().decode())
    except urllib.error.HTTPError as error:
        raise ConnectionError(f"{error}: {error.read().decode(errors='replace')}") from error


def unix(path: str) -> str:
    """Connect to a unix socket; `@` stands for the NUL of an abstract one."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        end.settimeout(PATIENCE)
        end.connect("\0" + path[1:] if path.startswith("@") else path)
        return "connected"


def environ() -> str:
    """All variables."""
    return json.dumps(dict(os.environ))


def argv() -> str:
    """The arguments it was started with."""
    return json.dumps(sys.argv[1:])


def proc() -> str:
    """What every visible process was started with: by pid, command line and environment."""
    from pathlib import Path

    found: dict[str, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            found[entry.name] = [_peek(entry / "cmdline"), _peek(entry / "environ")]
    return json.dumps(found)


def _peek(file: Path) -> str:
    try:
        return file.read_bytes().replace(b"\0", b"\n").decode(errors="replace")
    except OSError as error:
        return str(error)


def tmp() -> str:
    """Write a temporary file, read it back, leave it there."""
    import tempfile
    from pathlib import Path

    descriptor, name = tempfile.mkstemp()
    os.write(descriptor, b"temporary")
    os.close(descriptor)
    return json.dumps({"path": name, "text": Path(name).read_text(encoding="utf-8")})


def pids() -> str:
    """Its own pid and every other it can see."""
    return json.dumps([os.getpid(), *sorted(int(n) for n in os.listdir("/proc") if n.isdigit())])  # noqa: PTH208  names are enough


def kill(pid: int) -> str:
    """Ask whether a process could be signalled."""
    os.kill(pid, 0)
    return "signalled"


def unshare() -> str:
    """Enter a user namespace of its own, where it would be root."""
    import subprocess

    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PermissionError(done.stderr.strip())
    return "unshared"


def spawn() -> str:
    """Leave a process behind that is in no session of ours and ignores SIGTERM."""
    import subprocess

    child = subprocess.Popen(
        [sys.executable, "-c", _DETACHED, GRANDCHILD],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    if child.stdout is not None:
        child.stdout.read(1)
    child.wait()
    return "spawned"


def run(code: str) -> str:
    """Run a Python program of a few lines; gives what it prints."""
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def shell(command: str) -> str:
    """Run a shell command; what it prints is the answer, and a failure is no error."""
    import subprocess

    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}exit {done.returncode}"


def fork() -> str:
    """Start processes that wait, until no more can be started. How many there were."""
    import signal

    started = 0
    while started < 1000:
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            while True:
                signal.pause()
        started += 1
    return str(started)


def stay() -> str:
    """From now on end neither with stdin nor of SIGTERM."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    STAYING.append(True)
    return "staying"


STAYING: Final[list[bool]] = []

TOOLS: Final[Mapping[str, tuple[Callable[..., str], Mapping[str, str]]]] = {
    "append": (append, {"path": "string", "text": "string"}),
    "argv": (argv, {}),
    "connect": (connect, {"host": "string", "port": "integer"}),
    "environ": (environ, {}),
    "fork": (fork, {}),
    "http": (http, {"url": "string"}),
    "kill": (kill, {"pid": "integer"}),
    "link": (link, {"source": "string", "target": "string"}),
    "pids": (pids, {}),
    "proc": (proc, {}),
    "read": (read, {"path": "string"}),
    "remove": (remove, {"path": "string"}),
    "rename": (rename, {"source": "string", "target": "string"}),
    "run": (run, {"code": "string"}),
    "shell": (shell, {"command": "string"}),
    "spawn": (spawn, {}),
    "stay": (stay, {}),
    "symlink": (symlink, {"source": "string", "target": "string"}),
    "tmp": (tmp, {}),
    "unix": (unix, {"path": "string"}),
    "unshare": (unshare, {}),
    "write": (write, {"path": "string", "text": "string"}),
}
"""Every attempt with its arguments and their types."""


def answer(method: str, params: Message) -> Message:
    """The result of one request."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [_described(name, given) for name, (_, given) in TOOLS.items()]}
    if method == "tools/call":
        act = TOOLS[str(params["name"])][0]
        try:
            return _content(act(**_object(params.get("arguments") or {})))
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            return {**_content(f"{type(error).__name__}: {error}"), "isError": True}
    return {}


def _object(value: Json) -> Message:
    assert isinstance(value, dict)
    return value


def _described(name: str, arguments: Mapping[str, str]) -> Message:
    properties: Message = {key: {"type": kind} for key, kind in arguments.items()}
    schema: Message = {"type": "object", "properties": properties, "required": [*properties]}
    return {"name": name, "description": f"Tries {name}.", "inputSchema": schema}


def _content(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}]}


def serve() -> None:
    """Answer every request until stdin ends; then stay, if it has come to that."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(str(message["method"]), _object(message.get("params") or {}))
        reply: Message = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
        sys.stdout.buffer.flush()
    while STAYING:
        import signal

        signal.pause()


if __name__ == "__main__":
    serve()
