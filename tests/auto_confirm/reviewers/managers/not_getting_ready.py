"""An MCP server that cannot be asked, in the way its argument names."""

import os
import signal
import sys
from collections.abc import Callable
from itertools import count

from tests.auto_confirm.reviewers.managers.calls import TOOL, greet, respond, say
from tests.auto_confirm.reviewers.managers.conversation import Line, lines, send


def make_noise(_: Line) -> None:
    for number in count():
        say({"id": number, "method": "ping"})


def refuse(message: Line) -> None:
    say({"id": message["id"], "error": {"code": -32602, "message": "secret words"}})


def babble(_: Line) -> None:
    send(b'{"jsonrpc":"2.0","id":1,"result":{')


def die(_: Line) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def offer_another(message: Line) -> None:
    respond(message, {"tools": [{**TOOL, "name": "decide"}]})


def list_for_ever(message: Line) -> None:
    respond(message, {"tools": [], "nextCursor": "more"})


def list_too_much(message: Line) -> None:
    respond(message, {"tools": [TOOL], "x": "x" * 2_000_000})


WAYS: dict[str, dict[object, Callable[[Line], None]]] = {
    "silent": {},
    "noise": {"initialize": make_noise},
    "refuses": {"initialize": refuse},
    "garbage": {"initialize": babble},
    "stops": {"initialize": greet},
    "dies": {"initialize": greet, "tools/list": die},
    "other-tool": {"initialize": greet, "tools/list": offer_another},
    "pages": {"initialize": greet, "tools/list": list_for_ever},
    "too-many": {"initialize": greet, "tools/list": list_too_much},
}


def main(way: str) -> None:
    for message in lines():
        react = WAYS[way].get(message.get("method"))
        if react is not None:
            react(message)


if __name__ == "__main__":
    main(sys.argv[1])
