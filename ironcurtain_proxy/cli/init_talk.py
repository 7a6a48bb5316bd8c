"""What `init` says and asks on a terminal. Not a command itself."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import visible


@dataclass
class Talk:
    """The conversation of one run."""

    yes: bool
    """Whether each proposal is accepted without a question."""
    as_json: bool
    answer: dict[str, Json] = field(default_factory=dict)
    """What `--json` prints in the end."""

    def say(self, line: str = "") -> None:
        """Print a line for people."""
        if not self.as_json:
            sys.stdout.write(line.encode("utf-8", "backslashreplace").decode() + "\n")
            sys.stdout.flush()

    def ask(self, question: str, keys: Sequence[str] = ("y", "n")) -> str:
        """One of the keys; the first one is the proposal, and what an empty line means.

        Raises:
            ConfigurationError: the input ended.
        """
        if self.yes:
            return keys[0]
        choice = "/".join([keys[0].upper(), *keys[1:]])
        while True:
            sys.stdout.write(f"{question} [{choice}] ")
            sys.stdout.flush()
            line = sys.stdin.readline()
            if not line:
                raise ConfigurationError("the input ended before the questions were answered")
            word = line.strip().lower()
            if not word:
                return keys[0]
            if word[0] in keys:
                return word[0]

    def end(self, code: int) -> int:
        """Print the answer, if it was asked for. Returns the code."""
        if self.as_json:
            line = orjson.dumps({"ok": code == 0, **self.answer}).decode()
            sys.stdout.write(line + "\n")
        return code


def require_terminal(talk: Talk, command: str = "init") -> None:
    """Refuse to ask where nobody can answer.

    Raises:
        ConfigurationError: nobody can.
    """
    if talk.yes:
        return
    if talk.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError(
            f"{command} asks questions, and this is no terminal: pass --yes to accept every "
            "proposal, or --dry-run to look at them"
        )


def clean(text: str, width: int = 100) -> str:
    """A text from a file, on one line and not too long."""
    text = visible(text)
    return text if len(text) <= width else text[: width - 1] + "…"
