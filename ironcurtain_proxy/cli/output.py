"""The output of commands: lines, JSON documents, messages, and questions to answer with y or n."""

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import orjson

from ironcurtain_proxy.model.decision import Decision, Escalate
from ironcurtain_proxy.model.values import Json

UNCHANGED: Final = "nothing was changed"


def say(line: str) -> None:
    """Print one line at once. Text that is not UTF-8, such as a path, is escaped."""
    sys.stdout.write(encodable(line) + "\n")
    sys.stdout.flush()


def say_json(value: object) -> None:
    """Print a JSON document."""
    say(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def say_answer(
    options: argparse.Namespace,
    fields: Callable[[], object],
    lines: Callable[[], Iterable[str]],
) -> None:
    """Print an answer: as a JSON document with `--json`, else in lines."""
    if options.json:
        say_json(fields())
        return
    for line in lines():
        say(line)


def picked(one: object, keys: str) -> dict[str, Json]:
    """Return attributes as members of a JSON object, by its keys: `openFiles` is `open_files`."""
    found: dict[str, Json] = {}
    for key in keys.split():
        value = getattr(one, re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key))
        found[key] = [*value] if isinstance(value, tuple) else value
    return found


def decided(decision: Decision) -> dict[str, Json]:
    """Return a decision as JSON."""
    ground = decision.ground
    return {"decision": decision.effect, "rule": ground.rule, "reason": ground.reason}


def escalated_roles(decision: Decision) -> list[Json]:
    """Return the roles that a decision asks about."""
    return [*decision.roles] if isinstance(decision, Escalate) else []


def answer_lines(
    answer: Callable[[dict[str, Json]], dict[str, Json]], refusal: dict[str, Json]
) -> int:
    """Answer each JSON line of the input with one.

    Args:
        answer: the answer to an object. Raises TypeError or KeyError for a wrong member.
        refusal: the answer to a line that cannot be read.

    Returns:
        The exit code: 1 if a line could not be read.
    """
    failed = False
    for line in sys.stdin.buffer:
        if line.isspace():
            continue
        try:
            row = orjson.loads(line)
            answered = answer(row) if isinstance(row, dict) else None
        except (ValueError, TypeError, KeyError):
            answered = None
        failed |= answered is None
        say_line(refusal if answered is None else answered)
    return int(failed)


def say_line(row: dict[str, Json]) -> None:
    """Print a JSON object on one line."""
    sys.stdout.buffer.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def complain(line: str) -> None:
    """Print one line on standard error."""
    sys.stderr.write(f"ironcurtain-proxy: {line}\n")


def encodable(text: str) -> str:
    """Return a text with escapes for what UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()


def counted(count: int, what: str) -> str:
    """Return a number with its noun: `1 rule`, `2 rules`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text, with `…` for a rest beyond `most` characters."""
    return text if len(text) <= most else f"{text[:most]}…"


def is_confirmed(question: str) -> bool:
    """Return whether the person answers a question with yes. Every other input is a no.

    It is asked before the first change.
    """
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    with saying_what_holds(lambda: UNCHANGED):
        return typed_line().strip().lower() in {"y", "yes"}


@contextmanager
def saying_what_holds(what: Callable[[], str]) -> Iterator[None]:
    """Have `main` say what holds now if the person interrupts the command (Ctrl-C)."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(*(stop.args or [what()])) from None


def typed_line() -> str:
    """Return the line that a person types: `?` for bytes that are no text, empty at the end."""
    try:
        return sys.stdin.readline()
    except UnicodeDecodeError:
        return "?"


def terminal_width() -> int | None:
    """Return the columns of the terminal, or None if the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
