"""Says what should not count, in the way its argument names, and then denies properly."""

import sys
from collections.abc import Callable

import orjson

from tests.auto_confirm.reviewers.managers.conversation import (
    Line,
    answer,
    read_token,
    reviews,
    send,
)

Attack = Callable[[Line, str], None]


def twice(question: Line, token: str) -> None:
    decided = f'"decision":"deny","decision":"approve","token":"{token}","reviewer":"r"'
    send(f'{{"id":"{question["id"]}","argumentsHash":"{"f" * 64}",{decided}}}'.encode())


def flood(question: Line, token: str) -> None:
    for _ in range(20_000):
        send(b'{"decision":"approve"}')


def huge(question: Line, token: str) -> None:
    answer(question, token, note="x" * 10_000_000)


def just_too_long(question: Line, token: str) -> None:
    answer(question, token, note="x" * 65_536)


def deep(question: Line, token: str) -> None:
    send(b"[" * 30_000)


def garbage(question: Line, token: str) -> None:
    for line in (b"\xff\x00", b"approve", b"[]", b'"approve"', b"{", b"null", b'{"decision":NaN}'):
        send(line)


ATTACKS: dict[str, Attack] = {
    "wrong-token": lambda question, token: answer(question, token[:-1] + "!"),
    "no-token": lambda question, token: answer(question, token, token=None),
    "null-token": lambda question, token: answer(question, token, token=[token]),
    "longer-token": lambda question, token: answer(question, token + "x"),
    "others-token": lambda question, token: answer(question, sys.argv[2]),
    "no-proof": lambda question, token: answer(question, token, proof=""),
    "null-proof": lambda question, token: answer(question, token, proof=[token]),
    "wrong-proof": lambda question, token: answer(question, token, proof="0" * 64),
    "wrong-hash": lambda question, token: answer(question, token, argumentsHash="0" * 64),
    "no-hash": lambda question, token: answer(question, token, argumentsHash=None),
    "unknown-id": lambda question, token: answer(
        question, token, id="00000000-0000-4000-8000-000000000000"
    ),
    "no-id": lambda question, token: answer(question, token, id=None),
    "list-id": lambda question, token: answer(question, token, id=[question["id"]]),
    "approved": lambda question, token: answer(question, token, decision="approved"),
    "capitals": lambda question, token: answer(question, token, decision="APPROVE"),
    "true": lambda question, token: answer(question, token, decision=True),
    "no-decision": lambda question, token: answer(question, token, decision=None),
    "no-reviewer": lambda question, token: answer(question, token, reviewer=None),
    "strange-note": lambda question, token: answer(question, token, note={"a": 1}),
    "surrogate": lambda question, token: send(
        orjson.dumps({"id": question["id"]})[:-1] + b',"token":"\\ud800","decision":"approve"}'
    ),
    "twice": twice,
    "garbage": garbage,
    "deep": deep,
    "flood": flood,
    "huge": huge,
    "just-too-long": just_too_long,
}


def main(attack: Attack) -> None:
    token = read_token()
    for question in reviews():
        attack(question, token)
        answer(question, token, decision="deny", note="properly")


if __name__ == "__main__":
    main(ATTACKS[sys.argv[1]])
