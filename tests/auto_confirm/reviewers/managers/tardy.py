"""Answers a question about the tool `patience` only when it is called off.

Any other is approved, with all it was told so far as the note.
"""

from tests.auto_confirm.reviewers.managers.conversation import Line, answer, lines, read_token


def main() -> None:
    token = read_token()
    told: list[str] = []
    open_ones: dict[object, Line] = {}
    for line in lines():
        told.append(f"{line['type']}:{line['id']}")
        if line["type"] == "cancel":
            answer(open_ones[line["id"]], token)
        elif line["tool"] == "patience":
            open_ones[line["id"]] = line
        else:
            answer(line, token, note=" ".join(told))


if __name__ == "__main__":
    main()
