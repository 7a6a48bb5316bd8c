"""A server that does what the test wants, however wrong. Standard library only.

    scripted_server.py '{"how": "it misbehaves"}'

Every call names what is to happen; the JSON argument says how the server as a whole behaves:
`deaf` (never answers initialize), `prints` (a text, first of all), `stubborn` (outlives SIGTERM and
the end of its input), `pages` (of tools) or `circle` (of pages), `children` (that outlive it),
`die_once` (a file: exits at the first start), `capabilities`,
`restless` (its tools change whenever they are listed),
`version` (that it answers) or `only` (that it takes).
"""

# Hundreds of tests start it: what is imported at once is half of the start.
# ruff: noqa: PLC0415
from __future__ import annotations

import _thread
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.servers import quick_json as json
else:
    sys.path.insert(0, f"{__file__.rpartition('/')[0]}/../e2e/servers")
    import quick_json as json

Object = dict[str, object]

BEHAVIOUR: Object = {**json.loads(sys.argv[1])} if len(sys.argv) > 1 else {}
LOCK = _thread.allocate_lock()
ASKED: dict[str, int] = {}
CANCELLED: list[object] = []
TOOLS = ["echo", "added"]


def write(data: bytes, fd: int = 1) -> None:
    with LOCK:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]


def send(**message: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def answer(request: object, text: object, **more: object) -> None:
    send(id=request, result={"content": [{"type": "text", "text": text}], **more})


def echo(request: object, arguments: Object, params: Object) -> None:
    answer(request, arguments.get("text", ""), _meta=params.get("_meta"), unknown=1.0)


def sleep(request: object, arguments: Object, params: Object) -> None:
    def later() -> None:
        time.sleep(float(str(arguments["seconds"])))
        answer(request, "slept")

    _thread.start_new_thread(later, ())


def nothing(request: object, arguments: Object, params: Object) -> None:
    """Hangs."""


def stall(request: object, arguments: Object, params: Object) -> None:
    """Stops reading, too."""
    time.sleep(600)


def deaf(request: object, arguments: Object, params: Object) -> None:
    """Closes its input, and lives."""
    os.close(0)
    answer(request, "deaf")
    time.sleep(600)


def crash(request: object, arguments: Object, params: Object) -> None:
    os._exit(3)


def raw(request: object, arguments: Object, params: Object) -> None:
    """Write bytes given as Latin-1 text, ID standing for the id; then exit or answer, if wanted."""
    text = str(arguments["bytes"]).replace("ID", json.dumps(request))
    write(text.encode("latin-1"))
    if arguments.get("exit"):
        os._exit(3)
    if arguments.get("answer"):
        answer(request, "after")


def large(request: object, arguments: Object, params: Object) -> None:
    answer(request, "x" * int(str(arguments["size"])))


def length(request: object, arguments: Object, params: Object) -> None:
    answer(request, len(str(arguments["text"])))


def flood(request: object, arguments: Object, params: Object) -> None:
    for _ in range(int(str(arguments["kib"]))):
        write(b"e" * 1023 + str(arguments.get("end", "\n")).encode(), 2)
    answer(request, "flooded")


def say(request: object, arguments: Object, params: Object) -> None:
    for part in str(arguments["text"]).split("|"):
        write(part.encode(), 2)
        time.sleep(0.02)
    answer(request, "said")


def environment(request: object, arguments: Object, params: Object) -> None:
    answer(request, json.dumps(dict(os.environ)))


def where(request: object, arguments: Object, params: Object) -> None:
    answer(request, os.getcwd())  # noqa: PTH109  see above


def params(request: object, arguments: Object, params: Object) -> None:
    answer(request, json.dumps(params))


def progress(request: object, arguments: Object, params: Object) -> None:
    token = arguments.get("token") or (params.get("_meta") or {}).get("progressToken")  # type: ignore[attr-defined]
    for step in (1, 2.5, 12345678901234567890123):
        send(
            method="notifications/progress",
            params={"progressToken": token, "progress": step, "vendor": [1]},
        )
    answer(request, "done")


def ask(request: object, arguments: Object, params: Object) -> None:
    """Ask the client something; its whole reply becomes the answer."""
    ASKED["q"] = request  # type: ignore[assignment]
    send(id="q", method=arguments["method"])


def tell(request: object, arguments: Object, params: Object) -> None:
    send(method=arguments["method"], params=arguments.get("params", {}))
    answer(request, "told")


def storm(request: object, arguments: Object, params: Object) -> None:
    """Says the same again and again, and then answers."""
    token = (params.get("_meta") or {}).get("progressToken")  # type: ignore[attr-defined]
    said = {"progressToken": token, "progress": 1, "level": "info", "data": "x"}
    said["pad"] = "x" * int(str(arguments.get("size", 0)))
    note = {"jsonrpc": "2.0", "method": arguments["method"], "params": said}
    line = json.dumps(note).encode() + b"\n"
    for _ in range(int(str(arguments["times"])) // 100):
        write(line * 100)
    answer(request, "told")


def tools(request: object, arguments: Object, params: Object) -> None:
    TOOLS.append(str(arguments["name"]))
    send(method="notifications/tools/list_changed")
    answer(request, "changed")


def cancelled(request: object, arguments: Object, params: Object) -> None:
    answer(request, json.dumps(CANCELLED))


def fail(request: object, arguments: Object, params: Object) -> None:
    send(id=request, error={"code": -32099, "message": "no", "data": {"x": 1.0}})


def twice(request: object, arguments: Object, params: Object) -> None:
    answer(request, "first")
    answer(request, "second")


CALLS: dict[str, Callable[[object, Object, Object], None]] = {
    act.__name__: act
    for act in (
        *(
            echo,
            sleep,
            nothing,
            stall,
            deaf,
            crash,
            raw,
            large,
            length,
            flood,
            say,
            environment,
            where,
        ),
        *(params, progress, ask, tell, storm, tools, cancelled, fail, twice),
    )
}


def page(request: object, params: Object) -> None:
    pages, number = int(str(BEHAVIOUR.get("pages", 1))), int(str(params.get("cursor", 0)))
    listed = [{"name": name, "inputSchema": {"type": "object"}, "x": 1.0} for name in TOOLS]
    if number:
        listed = [{"name": f"page_{number}"}]
    more = {"nextCursor": str(number + 1)} if number + 1 < pages else {}
    if BEHAVIOUR.get("circle"):
        more = {"nextCursor": "1"}
    if BEHAVIOUR.get("restless"):
        TOOLS[1] = f"added_{request}"
        send(method="notifications/tools/list_changed")
    send(id=request, result={"tools": listed, **more})


def take(message: Object) -> None:  # noqa: C901  a table of what it does
    request, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    match method:
        case "initialize" if params.get("protocolVersion") != BEHAVIOUR.get(  # type: ignore[attr-defined]
            "only",
            params.get("protocolVersion"),  # type: ignore[attr-defined]
        ):
            data = {"supported": [BEHAVIOUR["only"]]}
            send(id=request, error={"code": -32602, "message": "unsupported", "data": data})
        case "initialize" if not BEHAVIOUR.get("deaf"):
            send(
                id=request,
                result={
                    "protocolVersion": BEHAVIOUR.get(
                        "version", BEHAVIOUR.get("only", "2024-11-05")
                    ),
                    "capabilities": BEHAVIOUR.get("capabilities", {"tools": {}}),
                    "serverInfo": {"name": "scripted", "version": "1"},
                },
            )
        case "tools/list":
            page(request, params)  # type: ignore[arg-type]
        case "tools/call":
            act = CALLS[params["name"]]  # type: ignore[index]
            act(request, params.get("arguments", {}), params)  # type: ignore[attr-defined,arg-type]
        case "notifications/cancelled":
            CANCELLED.append(params)
        case "logging/setLevel":
            CANCELLED.append(params)
            send(id=request, result={})
        case None if request == "q":
            answer(ASKED["q"], json.dumps(message))
        case None if isinstance(request, float):
            CANCELLED.append(message)
        case _:
            pass


def start_children() -> None:
    """One child in our session, one in its own, and one that has lost its parent as well."""
    import subprocess

    idle = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    orphan = (
        f"import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nos.execv({idle[0]!r}, {idle!r})"
    )
    for new_session in (False, True):
        subprocess.Popen(idle, start_new_session=new_session)
    subprocess.Popen([sys.executable, "-I", "-S", "-c", orphan])


def main() -> None:
    if "die_once" in BEHAVIOUR:
        marker = str(BEHAVIOUR["die_once"])
        if not os.path.exists(marker):  # noqa: PTH110  see above
            os.close(os.open(marker, os.O_CREAT))
            sys.exit(5)
    if BEHAVIOUR.get("children"):
        start_children()
    if BEHAVIOUR.get("stubborn"):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write(str(BEHAVIOUR.get("prints", "")).encode())
    for line in os.fdopen(0, "rb"):
        take({**json.loads(line)})
    while BEHAVIOUR.get("stubborn"):
        time.sleep(600)


if __name__ == "__main__":
    main()
