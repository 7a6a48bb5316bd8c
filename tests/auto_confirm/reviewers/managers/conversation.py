"""What every program here needs to review: its token, the questions, a way to answer."""

import os
import sys
from collections.abc import Iterator

import orjson

Line = dict[str, object]


def read_token() -> str:
    with os.fdopen(int(os.environ["IRONCURTAIN_REVIEWER_TOKEN_FD"])) as pipe:
        return pipe.read()


def lines() -> Iterator[Line]:
    for line in sys.stdin.buffer:
        yield orjson.loads(line)


def reviews() -> Iterator[Line]:
    return (line for line in lines() if line["type"] == "review")


def answer(question: Line, token: str, /, **changes: object) -> None:
    """Approve, but for the changes; a change to None leaves the key out."""
    fields: Line = {
        "id": question["id"],
        "decision": "approve",
        "argumentsHash": question["argumentsHash"],
        "reviewer": "model-7",
        "token": token,
        "note": "seen",
        **changes,
    }
    send(orjson.dumps({key: value for key, value in fields.items() if value is not None}))


def send(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
