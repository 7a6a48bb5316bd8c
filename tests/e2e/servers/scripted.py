#!/usr/bin/env python3
"""A downstream server that does what its caller says: hold a call, write garbage, die.

Speaks MCP over stdio with the standard library alone. Its tools are those of `TOOLS`, or the text
of the file `SCRIPTED_TOOLS`, sent letter by letter as it stands there. A tool that is not in `ACTS`
answers with the `params` it was sent, so that a test sees what was forwarded. Every line that
arrives is written down in `SCRIPTED_JOURNAL` before it is acted upon.
"""

# Hundreds of tests start it: what is imported at once is half of the start.
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
    import subprocess
    from collections.abc import Callable, Mapping
    from typing import BinaryIO, Final, TypeAlias

    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
    Message: TypeAlias = dict[str, Json]

TOOLS: Final[Mapping[str, Mapping[str, str]]] = {
    "answer": {"text": "string"},
    "ask": {"text": "string"},
    "blot": {},
    "change": {"add": "string"},
    "die": {},
    "echo": {"text": "string", "list": "array"},
    "environment": {},
    "error": {"line": "string"},
    "fifo": {"name": "string"},
    "fill": {"bytes": "integer"},
    "forbidden": {"text": "string"},
    "hold": {"key": "string"},
    "log": {"text": "string"},
    "pid": {},
    "progress": {"times": "integer"},
    "raw": {"line": "string"},
    "release": {"key": "string"},
    "roots": {},
    "spawn": {},
    "stderr": {"text": "string", "times": "integer"},
    "write": {"latin1": "string", "times": "integer", "answer": "boolean"},
}

SHOWN: Final = tuple([name for name in TOOLS if name != "forbidden"])
"""The tools of which the policy of the tests allows or asks about some call."""
"""Every tool with its arguments and their types."""

STUBBORN: Final = (
    "import os, signal\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "os.write(1, b'.')\n"
    "signal.pause()\n"
)
"""A process that only SIGKILL ends; says on stdout when it has become so."""


def described(name: str, arguments: Mapping[str, str]) -> Message:
    """The tool as `tools/list` shows it."""
    properties: Message = {key: {"type": kind} for key, kind in arguments.items()}
    return {
        "name": name,
        "description": f"Does {name}.",
        "inputSchema": {"type": "object", "properties": properties},
    }


class Scripted:
    """One session over stdin and stdout."""

    def __init__(self) -> None:
        self.incoming: BinaryIO = sys.stdin.buffer
        self.outgoing: BinaryIO = sys.stdout.buffer
        self.held: dict[str, Json] = {}
        self.waiting_for_roots: Json = None
        self.added: list[Json] = []
        self.children: list[subprocess.Popen[bytes]] = []
        journal = os.environ.get("SCRIPTED_JOURNAL")
        # Unbuffered: what is in the file was read from us, however we end.
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if journal else None

    def serve(self) -> None:
        """Answer until stdin ends, and after it where `SCRIPTED_STAY` says so."""
        for line in self.incoming:
            if self.journal is not None:
                os.write(self.journal, line)
            message = json.loads(line)
            if "method" in message:
                self._take(str(message["method"]), message)
            elif message.get("id") == "roots":
                self._text(self.waiting_for_roots, json.dumps(message.get("result")))
        while "SCRIPTED_STAY" in os.environ:
            import signal

            signal.pause()

    def _take(self, method: str, message: Message) -> None:
        if method == "initialize":
            if os.environ.get("SCRIPTED_START") == "mute":
                return
            self._result(
                message["id"],
                {
                    "protocolVersion": _object(message["params"])["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                },
            )
        elif method == "tools/list":
            self._list(message)
        elif method == "tools/call":
            params = _object(message["params"])
            act = ACTS.get(str(params["name"]), Scripted._echo)
            act(self, message["id"], params)
        elif "id" in message:
            self._result(message["id"], {})

    def _list(self, message: Message) -> None:
        file = os.environ.get("SCRIPTED_TOOLS")
        if file is not None:
            text = _text_of(file)
            self._line(f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{text}}}')
            return
        tools: list[Json] = [described(name, given) for name, given in TOOLS.items()]
        tools += self.added
        size = int(os.environ.get("SCRIPTED_PAGE", len(tools)))
        start = int(str(_object(message.get("params") or {}).get("cursor") or 0))
        result: Message = {"tools": tools[start : start + size]}
        if start + size < len(tools):
            result["nextCursor"] = str(start + size)
        self._result(message["id"], result)

    # --- what the tools do

    def _echo(self, request: Json, params: Message) -> None:
        self._text(request, json.dumps(params))

    def _answer(self, request: Json, params: Message) -> None:
        self._text(request, str(_argument(params, "text")))

    def _blot(self, request: Json, params: Message) -> None:
        head = f'{{"jsonrpc":"2.0","id":{json.dumps(request)},"result":'.encode()
        self.outgoing.write(head + b'{"content":[{"type":"text","text":"\xff\xfe"}]}}\n')
        self.outgoing.flush()

    def _change(self, request: Json, params: Message) -> None:
        self.added.append(described(str(_argument(params, "add")), {"text": "string"}))
        self._notify("notifications/tools/list_changed", {})
        self._text(request, "changed")

    def _die(self, request: Json, params: Message) -> None:
        os.kill(os.getpid(), 9)

    def _environment(self, request: Json, params: Message) -> None:
        self._text(request, json.dumps(dict(os.environ)))

    def _error(self, request: Json, params: Message) -> None:
        error = _argument(params, "line")
        self._line(f'{{"jsonrpc":"2.0","id":{json.dumps(request)},"error":{error}}}')

    def _fill(self, request: Json, params: Message) -> None:
        self._text(request, "x" * int(str(_argument(params, "bytes"))))

    def _fifo(self, request: Json, params: Message) -> None:
        # Opening blocks until the test opens the other end: then it knows that we are at work.
        self._text(request, _text_of(str(_argument(params, "name"))))

    def _hold(self, request: Json, params: Message) -> None:
        self.held[str(_argument(params, "key"))] = request
        self._notify("notifications/message", {"level": "info", "data": "held"})

    def _release(self, request: Json, params: Message) -> None:
        self._text(self.held.pop(str(_argument(params, "key"))), "held until now")
        self._text(request, "released")

    def _log(self, request: Json, params: Message) -> None:
        self._notify("notifications/message", {"level": "info", "data": _argument(params, "text")})
        self._text(request, "logged")

    def _pid(self, request: Json, params: Message) -> None:
        self._text(request, str(os.getpid()))

    def _progress(self, request: Json, params: Message) -> None:
        token = _object(params["_meta"])["progressToken"]
        for step in range(int(str(_argument(params, "times")))):
            self._notify("notifications/progress", {"progressToken": token, "progress": step + 1})
        self._text(request, "done")

    def _raw(self, request: Json, params: Message) -> None:
        result = _argument(params, "line")
        self._line(f'{{"jsonrpc":"2.0","id":{json.dumps(request)},"result":{result}}}')

    def _roots(self, request: Json, params: Message) -> None:
        self.waiting_for_roots = request
        self._send({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"})

    def _spawn(self, request: Json, params: Message) -> None:
        import subprocess

        pids: list[int] = []
        for new_session in (False, True):
            child = subprocess.Popen(
                [sys.executable, "-c", STUBBORN],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=new_session,
            )
            if child.stdout is not None:
                child.stdout.read(1)
            self.children.append(child)
            pids.append(child.pid)
        self._text(request, json.dumps(pids))

    def _stderr(self, request: Json, params: Message) -> None:
        text = str(_argument(params, "text")).encode()
        for _ in range(int(str(_argument(params, "times")))):
            sys.stderr.buffer.write(text)
        sys.stderr.buffer.flush()
        self._text(request, "complained")

    def _write(self, request: Json, params: Message) -> None:
        piece = str(_argument(params, "latin1")).encode("latin-1")
        for _ in range(int(str(_argument(params, "times") or 1))):
            self.outgoing.write(piece)
        self.outgoing.flush()
        if _argument(params, "answer") is not False:
            self._text(request, "written")

    # --- the wire

    def _text(self, request: Json, text: str) -> None:
        self._result(request, {"content": [{"type": "text", "text": text}]})

    def _result(self, request: Json, result: Json) -> None:
        self._send({"jsonrpc": "2.0", "id": request, "result": result})

    def _notify(self, method: str, params: Json) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: Message) -> None:
        self._line(json.dumps(message))

    def _line(self, text: str) -> None:
        self.outgoing.write(text.encode() + b"\n")
        self.outgoing.flush()


def _object(value: Json) -> Message:
    assert isinstance(value, dict)
    return value


def _text_of(file: str) -> str:
    with open(file, encoding="utf-8") as opened:  # noqa: PTH123  see above
        return opened.read()


def _argument(params: Message, name: str) -> Json:
    return _object(params.get("arguments") or {}).get(name)


ACTS: Final[Mapping[str, Callable[[Scripted, Json, Message], None]]] = {
    "answer": Scripted._answer,
    "blot": Scripted._blot,
    "change": Scripted._change,
    "die": Scripted._die,
    "environment": Scripted._environment,
    "error": Scripted._error,
    "fifo": Scripted._fifo,
    "fill": Scripted._fill,
    "hold": Scripted._hold,
    "log": Scripted._log,
    "pid": Scripted._pid,
    "progress": Scripted._progress,
    "raw": Scripted._raw,
    "release": Scripted._release,
    "roots": Scripted._roots,
    "spawn": Scripted._spawn,
    "stderr": Scripted._stderr,
    "write": Scripted._write,
}
"""What the tools of `TOOLS` do; all others answer with what they were sent."""


if __name__ == "__main__":
    if os.environ.get("SCRIPTED_START") == "exit":
        sys.exit("this server does not start")
    if "SCRIPTED_STAY" in os.environ:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Scripted().serve()
