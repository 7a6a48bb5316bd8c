"""The output of commands: lines, JSON documents, messages, and questions to answer with y or n."""

import shutil
import sys

import orjson


def say(line: str) -> None:
    """Print one line at once. Text that is not UTF-8, such as a path, is escaped."""
    sys.stdout.write(encodable(line) + "\n")
    sys.stdout.flush()


def say_json(value: object) -> None:
    """Print a JSON document."""
    say(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def complain(line: str) -> None:
    """Print one line on standard error."""
    sys.stderr.write(f"ironcurtain-proxy: {line}\n")


def encodable(text: str) -> str:
    """A text with escapes for what UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()


def counted(count: int, what: str) -> str:
    """A number with its noun: `1 rule`, `2 rules`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def shortened(text: str, most: int) -> str:
    """The beginning of a text, with `…` for a rest beyond `most` characters."""
    return text if len(text) <= most else f"{text[:most]}…"


def is_confirmed(question: str) -> bool:
    """Whether the person answers a question with yes. Every other input is a no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def terminal_width() -> int | None:
    """The columns of the terminal; None: the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
