"""A parsed shell command: the programs that would run, with their arguments.

A `ParsedCommand` is flat. Pipes, lists, substitutions, loops and here-documents are gone; every
simple command in them stands for itself, in the order of the text, because a command is judged by
all that it could run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import Struct


class Piece(Struct, frozen=True):
    """A part of a word: known text, or a variable."""

    text: str
    """The text, or the name of the variable."""
    is_variable: bool
    splits: bool = False
    """The variable stands outside of quotes: a shell splits its value, and matches it to files."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command, quotes removed: `"a b"` is `a b`."""

    text: str | None
    """The text; None: it is not known before the command runs (a variable, a substitution, a glob,
    braces)."""
    pattern: str = ""
    """The known part of a word whose value is not known, with `*` for the rest: `--to=*` of
    `--to=$x`."""
    splits: bool = False
    """The word may expand to several words or none: `$x`, `*.py`, `{a,b}`; not `"$x"`. Words after
    the first may be anything, whatever the pattern."""
    command: "ParsedCommand | None" = None
    """The word parsed as a command, where a shell in the same command may run it: `ls` of `sh -c
    ls`. Of `--option=text` the text is parsed."""
    variables: frozenset[str] = frozenset()
    """Names of the variables in the word, such as `HOME`; `@` for all arguments."""
    template: tuple[Piece, ...] = ()
    """The parts of a word of known texts and plain variables; empty: it has others."""
    is_glob: bool = False
    """The word is known but for the names of files that it matches: `src/*.py`, not `$x/*.py` or
    `src/{a,b}`. So all its expansions begin with its prefix."""

    @property
    def prefix(self) -> str:
        """The known beginning of the word."""
        return self.pattern.partition("*")[0] if self.text is None else self.text


class Assignment(Struct, frozen=True):
    """`NAME=value`, before a command or alone; also the variable of a `for`."""

    name: str
    value: Word


class Redirection(Struct, frozen=True):
    """A redirection of input or output."""

    operator: str
    """`<`, `>`, `>>`, `>|`, `&>`, `&>>`, `<&`, `>&`, `<&-`, `>&-`, `<<` or `<<<`."""
    target: Word
    """A file or a descriptor; the text of a here-document or here-string; empty after `>&-`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """A program and its arguments. Without words: assignments or redirections alone."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    set_before: frozenset[str] = frozenset()
    """Variables that the same text has set in any case when the command runs."""
    is_certain: bool = True
    """The command runs exactly once, in the shell itself: not behind `||`, in a subshell, a
    pipeline, a loop or a condition. Only then is the effect of a `cd` on later commands known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """All simple commands of a shell text. Empty: the text runs nothing."""

    commands: tuple[SimpleCommand, ...] = ()
    unreadable: str | None = None
    """The reason why the text could not be parsed; `commands` then holds only the recognised part.
    """
    loose_words: tuple[str, ...] = ()
    """Words of an unparsed text that could name a program. Used for denials."""
    has_background: bool = False
    """Whether a part of it runs in the background (`&`) beside the others."""

    def every_loose_word(self) -> Iterator[str]:
        """The loose words of this text and of all texts that a shell in it may run."""
        yield from self.loose_words
        for command in self.commands:
            for word in command.words:
                if word.command is not None:
                    yield from word.command.every_loose_word()

    def every_command(self) -> Iterator[SimpleCommand]:
        """The commands of this text and of all texts that a shell in it may run."""
        for command in self.commands:
            yield command
            for word in command.words:
                if word.command is not None:
                    yield from word.command.every_command()
