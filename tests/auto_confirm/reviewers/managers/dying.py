"""Approves so many, keeps their ids in a file, and is killed by the next question."""

import os
import signal
import sys
from pathlib import Path

from tests.auto_confirm.reviewers.managers.conversation import answer, read_token, reviews


def main(survives: int, kept: Path) -> None:
    token = read_token()
    for count, question in enumerate(reviews()):
        if count == survives:
            os.kill(os.getpid(), signal.SIGKILL)
        with kept.open("a", encoding="utf-8") as file:
            file.write(f"{question['id']}\n")
        answer(question, token)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
