"""Decides by the last name in what the call is about: approve, deny, or no word at all."""

from typing import Final

from tests.auto_confirm.reviewers.managers.conversation import answer, read_token, reviews

WORDS: Final = {"approve": "approve", "deny": "deny"}


def main() -> None:
    token = read_token()
    for question in reviews():
        decision = WORDS.get(str(question["scope"]).rpartition("/")[2])
        if decision is not None:
            answer(question, token, decision=decision)


if __name__ == "__main__":
    main()
