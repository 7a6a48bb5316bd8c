"""Writes down so many questions, waits until somebody opens its pipe, then approves all there are.

Whatever is asked afterwards it approves at once.
"""

import sys
from itertools import islice
from pathlib import Path

from tests.auto_confirm.reviewers.managers.conversation import answer, read_token, reviews


def main(count: int, kept: Path, pipe: Path) -> None:
    token, questions, gathered = read_token(), reviews(), []
    for question in islice(questions, count):
        gathered.append(question)
        with kept.open("a", encoding="utf-8") as file:
            file.write(f"{question['id']}\n")
    pipe.read_bytes()
    for question in gathered:
        answer(question, token)
    for question in questions:
        answer(question, token)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
