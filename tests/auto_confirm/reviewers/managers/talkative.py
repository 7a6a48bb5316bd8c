"""Prints its token on standard error, and puts it and what it has heard into its note."""

import os
import sys

import orjson

from tests.auto_confirm.reviewers.managers.conversation import answer, read_token, reviews


def main() -> None:
    token = read_token()
    for question in reviews():
        print(f"the token is {token}", file=sys.stderr, flush=True)  # noqa: T201
        told = {
            "token": token,
            "environment": sorted(os.environ),
            "in_environment": token in os.environ.values(),
            "in_question": token in orjson.dumps(question).decode(),
        }
        answer(question, token, note=orjson.dumps(told).decode())


if __name__ == "__main__":
    main()
