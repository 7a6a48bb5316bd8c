"""Approves under the name that its argument gives."""

import sys

from tests.auto_confirm.reviewers.managers.conversation import answer, read_token, reviews


def main(name: str) -> None:
    token = read_token()
    for question in reviews():
        answer(question, token, reviewer=name)


if __name__ == "__main__":
    main(sys.argv[1])
