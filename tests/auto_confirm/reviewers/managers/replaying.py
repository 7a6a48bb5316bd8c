"""Approves the first question. To every further one it says that again, for the new id, too."""

from tests.auto_confirm.reviewers.managers.conversation import Line, answer, read_token, reviews


def main() -> None:
    token = read_token()
    first: Line | None = None
    for question in reviews():
        if first is None:
            first = question
            answer(question, token)
            answer(question, token)
        else:
            answer(first, token)
            answer({**first, "id": question["id"]}, token)
            answer(question, token, decision="deny")


if __name__ == "__main__":
    main()
