"""The dialogue of `init` on a terminal. Not a command itself."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from ironcurtain_proxy.cli.output import encodable
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import visible


@dataclass
class Dialogue:
    """The dialogue of one run."""

    yes: bool
    """Whether `--yes` accepts each proposal without a question."""
    as_json: bool
    answer: dict[str, Json] = field(default_factory=dict)
    """The output of `--json`."""

    def say(self, line: str = "") -> None:
        """Print a line for people."""
        if not self.as_json:
            sys.stdout.write(encodable(line) + "\n")
            sys.stdout.flush()

    def ask(self, question: str, keys: Sequence[str] = ("y", "n")) -> str:
        """The chosen key. An empty line chooses the first key, which is the proposal.

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
        """Print the JSON output if it was requested. Returns the exit code."""
        if self.as_json:
            line = orjson.dumps({"ok": code == 0, **self.answer}).decode()
            sys.stdout.write(line + "\n")
        return code


def require_terminal(talk: Dialogue, command: str = "init") -> None:
    """Refuse to ask without a terminal.

    Raises:
        ConfigurationError: there is no terminal.
    """
    if talk.yes:
        return
    if talk.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError(
            f"{command} asks questions, which needs a terminal: pass --yes to accept every "
            "proposal, or --dry-run to look at them"
        )


def clean(text: str, width: int = 100) -> str:
    """A text from a file, on one line and not too long."""
    text = visible(text)
    return text if len(text) <= width else text[: width - 1] + "…"
