"""The commands that a shell text would run, parsed with a shell grammar.

The grammar (tree-sitter's, of bash) says where things are; `words` and `statements`
hold that against the text. A part that the grammar and bash could understand differently makes the
command unreadable, and so do things whose effect cannot be read off a text: functions, `eval` of
what is not known, arithmetic with names, unusual expansions.
"""

import functools
import re
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.model.command import ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.shell.statements import read_statements
from ironcurtain_proxy.shell.words import TextReading

if TYPE_CHECKING:
    from tree_sitter import Language

MAX_LENGTH: Final = 8192
"""The most bytes. The grammar's error recovery takes quadratic time: a quarter of a second for
these."""

MAX_DEPTH: Final = 4
"""The most levels of texts in texts, such as `sh -c "sh -c ls"`."""

_CONTINUED: Final = re.compile(r"\A(?:[ \t\n]*\\\n)+")
_NAMES: Final = re.compile(r"[\w.+-]+")

TEXT_RUNNERS: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "eval", "watch", "fzf", "su", "script"}
)
"""Programs that run the text of an argument. The words after them are parsed as commands, too."""


def parse_command(text: str, *, depth: int = MAX_DEPTH) -> ParsedCommand:
    """The commands that a shell would run for a text. Never raises.

    A text that is empty, or only a comment, runs nothing and is readable.
    """
    # A shell joins continued lines first: at the start of a text they say nothing.
    text = _CONTINUED.sub("", text, count=1)
    reason = _unfit(text)
    if reason is None and depth <= 0:
        reason = "commands are nested too deeply"
    if reason is not None:
        return ParsedCommand(unreadable=reason, loose_words=_loose_words(text))
    from tree_sitter import Parser

    source = text.encode()
    root = Parser(_language()).parse(source).root_node
    reading = TextReading(source)
    if root.has_error:
        reading.refuse("it is not understood as a shell command")
    read_statements(reading, root)
    return ParsedCommand(
        commands=tuple(_with_texts(command, depth) for command in reading.commands),
        unreadable=reading.unreadable,
        loose_words=() if reading.unreadable is None else _loose_words(text),
        has_background=reading.has_background,
    )


def _loose_words(text: str) -> tuple[str, ...]:
    """The possible names of programs in a text that is not understood, without quotes."""
    return tuple(dict.fromkeys(_NAMES.findall(text[: MAX_LENGTH * 8])))


@functools.cache
def _language() -> "Language":
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _unfit(text: str) -> str | None:
    """The reason why a text is not parsed at all."""
    # A character is at least a byte: a huge text is not encoded to find out.
    if len(text) > MAX_LENGTH or len(text.encode(errors="replace")) > MAX_LENGTH:
        return f"it is longer than {MAX_LENGTH} bytes"
    for character in set(text):
        if character in "\n\t" or (character.isascii() and character.isprintable()):
            continue
        # Shells differ about what separates words: only blanks that all agree on.
        if unicodedata.category(character) in {"Cc", "Cs", "Zs", "Zl", "Zp", "Cn"}:
            return "it has control characters or unusual blanks"
    return None


def _with_texts(command: SimpleCommand, depth: int) -> SimpleCommand:
    """The command, with the texts for a shell in it parsed as commands."""
    runner = next(
        (
            n
            for n, word in enumerate(command.words)
            if word.text is not None and word.text.rsplit("/", 1)[-1] in TEXT_RUNNERS
        ),
        None,
    )
    if runner is None:
        return command
    before, after = command.words[: runner + 1], command.words[runner + 1 :]
    return replace(command, words=(*before, *(_with_text(word, depth) for word in after)))


def _with_text(word: Word, depth: int) -> Word:
    if word.text is None:
        return word
    name, equals, value = word.text.partition("=")
    text = value if equals and name.startswith("--") else word.text
    return replace(word, command=parse_command(text, depth=depth - 1))
