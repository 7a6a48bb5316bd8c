"""Gives the answer named by its argument, and keeps the ids in a file if there is a second one."""

import sys
from pathlib import Path

from tests.auto_confirm.reviewers.managers.conversation import answer, read_token, reviews


def main(decision: str, kept: str = "") -> None:
    token = read_token()
    for question in reviews():
        if kept:
            with Path(kept).open("a", encoding="utf-8") as file:
                file.write(f"{question['id']}\n")
        answer(question, token, decision=decision)


if __name__ == "__main__":
    main(*sys.argv[1:])
