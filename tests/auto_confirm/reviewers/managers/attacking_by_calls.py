"""An MCP server that says what should not count, in the way its argument names.

Then it says what would. A spoilt call has had its result: the approval that follows is one too
many. Noise is no result: the denial that follows is a denial.
"""

import sys
from collections.abc import Callable

import orjson

from tests.auto_confirm.reviewers.managers.calls import answer, calls, fields, respond, say
from tests.auto_confirm.reviewers.managers.conversation import Line, read_token, send

Attack = Callable[[Line, str], None]


def text(call: Line, token: str, count: int) -> None:
    block = {"type": "text", "text": orjson.dumps(fields(call, token)).decode()}
    respond(call, {"content": [block] * count})


def failed(call: Line, token: str) -> None:
    respond(call, {"isError": True, "structuredContent": fields(call, token)})


def refused(call: Line, token: str) -> None:
    say({"id": call["id"], "error": {"code": -32000, "message": f"approve {token}"}})


def twice(call: Line, token: str) -> None:
    good = orjson.dumps(fields(call, token, decision="deny")).decode()
    send(
        f'{{"id":{call["id"]},"result":{{"structuredContent":{good[:-1]},'.encode()
        + b'"decision":"approve"}}}'
    )


def cut_off(call: Line, token: str) -> None:
    send(f'{{"jsonrpc":"2.0","id":{call["id"]},"result":{{"structuredContent":{{'.encode())


def earlier_call(call: Line, token: str) -> None:
    respond({"id": 1}, {"structuredContent": fields(call, token)})


def next_call(call: Line, token: str) -> None:
    assert isinstance(call["id"], int)
    respond({"id": call["id"] + 1}, {"structuredContent": fields(call, token)})


def as_a_line(call: Line, token: str) -> None:
    send(orjson.dumps(fields(call, token)))


def requests(call: Line, token: str) -> None:
    for number in range(3):
        say({"id": number, "method": "ping"})
        say({"id": number, "method": "sampling/createMessage", "params": fields(call, token)})
    say({"method": "notifications/message", "params": {"data": fields(call, token)}})


def flood(call: Line, token: str) -> None:
    for number in range(5_000):
        say({"id": number + 100, "result": {"structuredContent": fields(call, token)}})
        say({"method": "notifications/message"})
        say({"id": number, "method": "roots/list"})


def not_reading(call: Line, token: str) -> None:
    for number in range(1_200):
        say({"id": f"{number}{'x' * 30_000}", "method": "ping"})


def garbage(call: Line, token: str) -> None:
    for line in (b"\xff\x00", b"approve", b"[]", b'"approve"', b"{", b"null", b"[" * 30_000):
        send(line)


SPOILT: dict[str, Attack] = {
    "wrong-token": lambda call, token: answer(call, token[:-1] + "!"),
    "no-token": lambda call, token: answer(call, token, token=None),
    "others-token": lambda call, token: answer(call, sys.argv[2]),
    "wrong-hash": lambda call, token: answer(call, token, argumentsHash="0" * 64),
    "wrong-id": lambda call, token: answer(call, token, id="0" * 36),
    "approved": lambda call, token: answer(call, token, decision="approved"),
    "two-texts": lambda call, token: text(call, token, 2),
    "no-text": lambda call, token: text(call, token, 0),
    "failed": failed,
    "refused": refused,
    "twice": twice,
    "cut-off": cut_off,
    "just-too-long": lambda call, token: answer(call, token, note="x" * 65_536),
    "huge": lambda call, token: answer(call, token, note="x" * 10_000_000),
    "null": lambda call, token: respond(call, None),
}

NOISE: dict[str, Attack] = {
    "earlier-call": earlier_call,
    "next-call": next_call,
    "text-id": lambda call, token: respond(
        {"id": str(call["id"])}, {"structuredContent": fields(call, token)}
    ),
    "as-a-line": as_a_line,
    "requests": requests,
    "flood": flood,
    "garbage": garbage,
}


def swap(token: str) -> None:
    """Of every two calls, answer each with what would settle the other, then each properly."""
    waiting: list[Line] = []
    for call in calls():
        waiting.append(call)
        if len(waiting) == 2:
            one, other = waiting
            waiting = []
            for call_id, about in ((one, other), (other, one), (one, one), (other, other)):
                respond(call_id, {"structuredContent": fields(about, token)})


def main(attack: str) -> None:
    token = read_token()
    if attack == "swap":
        swap(token)
    for call in calls():
        (SPOILT | NOISE | {"not-reading": not_reading})[attack](call, token)
        answer(call, token, decision="approve" if attack in SPOILT else "deny", note="properly")


if __name__ == "__main__":
    main(sys.argv[1])
