"""Answers a call about the tool `patience` only when it is cancelled.

Any other is approved, with all it was told so far as the note.
"""

from tests.auto_confirm.reviewers.managers.calls import answer, messages, question_of
from tests.auto_confirm.reviewers.managers.conversation import Line, read_token


def main() -> None:
    token = read_token()
    told: list[str] = []
    open_ones: dict[object, Line] = {}
    for message in messages():
        if message["method"] == "notifications/cancelled":
            params = message["params"]
            assert isinstance(params, dict)
            told.append(f"cancel:{params['requestId']}")
            answer(open_ones[params["requestId"]], token)
        elif message["method"] == "tools/call":
            told.append(f"call:{message['id']}")
            if question_of(message)["tool"] == "patience":
                open_ones[message["id"]] = message
            else:
                answer(message, token, note=" ".join(told))


if __name__ == "__main__":
    main()
