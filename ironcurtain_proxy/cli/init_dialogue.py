"""The dialogue of `init` on a terminal, and what a screen may show. Not a command itself."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from ironcurtain_proxy.audit.commands import is_telling, is_telling_option
from ironcurtain_proxy.audit.redaction import redact_text
from ironcurtain_proxy.audit.secrets import MASK
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
    all_steps: bool = False
    """Whether the person has accepted all steps at once."""
    answer: dict[str, Json] = field(default_factory=dict)
    """The output of `--json`."""

    def say(self, line: str = "") -> None:
        """Print a line for people."""
        if not self.as_json:
            sys.stdout.write(encodable(line) + "\n")
            sys.stdout.flush()

    def ask(self, question: str, keys: Sequence[str] = ("y", "n"), *, is_step: bool = False) -> str:
        """Return the chosen key. An empty line chooses the first key, which is the proposal.

        Args:
            question: for the person.
            keys: the first letters of the answers.
            is_step: whether it is one of the steps that were shown before, and that can be
                accepted all at once.

        Raises:
            ConfigurationError: the input ended.
        """
        if self.yes or (is_step and self.all_steps):
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


_BEFORE_PAIR: Final = frozenset({"-H", "--header", "--headers", "-e", "--env"})
"""Options before a header, or a variable of a container."""
_PAIR: Final = re.compile(r"([\w.-]+)([:=] ?)(?=.)", re.ASCII)
_PLAIN: Final = frozenset(
    {"accept", "content-type", "user-agent", "node_env", "log_level", "debug"}
)
"""Headers and variables that hold no secret."""


def masked_arguments(words: Sequence[str]) -> list[str]:
    """The arguments of a command with its secrets masked, for a screen that others may see."""
    found: list[str] = []
    before = ""
    for word in words:
        name, sign, value = word.partition("=")
        if is_telling_option(before) and not word.startswith("-"):
            found.append(MASK)
        elif before in _BEFORE_PAIR:
            found.append(_masked_pair(word))
        elif sign and name in _BEFORE_PAIR:
            found.append(f"{name}={_masked_pair(value)}")
        elif value and is_telling(name.lstrip("-")):
            found.append(f"{name}={MASK}")
        else:
            found.append(redact_text(word))
        before = word
    return found


def _masked_pair(text: str) -> str:
    """A header or a variable, `NAME: VALUE` or `NAME=VALUE`, with its value masked."""
    pair = _PAIR.match(text)
    if pair is None or pair[1].lower() in _PLAIN:
        return redact_text(text)
    return f"{pair[1]}{pair[2]}{MASK}"
