"""A shell command, read: what would run, with what.

A `ParsedCommand` is flat. Pipes, lists, substitutions, loops and here-documents are gone; every
simple command in them stands for itself, in the order of the text, because a command is judged by
all that it could run.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command, quotes removed: `"a b"` is `a b`."""

    text: str | None
    """None: not known before it runs (a variable, a substitution, a glob, braces)."""
    pattern: str = ""
    """Of a word that is not known: what is known of it, `*` for the rest: `--to=*` of `--to=$x`."""
    splits: bool = False
    """It may become several words, or none: `$x`, `*.py`, `{a,b}`; not `"$x"`. Words after the
    first may then be anything, whatever the pattern."""
    command: "ParsedCommand | None" = None
    """What the word says, read as a command. Only words that a shell in the same command may be
    handed have one: `ls` of `sh -c ls`. Of `--option=text` the text is read."""
    variables: frozenset[str] = frozenset()
    """Names of the variables in the word, such as `HOME`; `@` for all arguments."""

    @property
    def prefix(self) -> str:
        """How the word begins, as far as that is known."""
        return self.pattern.partition("*")[0] if self.text is None else self.text


@dataclass(frozen=True, slots=True)
class Assignment:
    """`NAME=value`, before a command or alone; also the variable of a `for`."""

    name: str
    value: Word


@dataclass(frozen=True, slots=True)
class Redirection:
    """Where input comes from, or output goes."""

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
    is_certain: bool = True
    """It runs once, in the shell itself: not behind `||`, in a subshell, a pipeline, a loop or a
    condition. Only then is it known what a `cd` does to the commands behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """All that a text would run if a shell got it. No commands: it runs nothing."""

    commands: tuple[SimpleCommand, ...] = ()
    unreadable: str | None = None
    """Why the text is not understood; then `commands` are what could be made out, not all."""
    loose_words: tuple[str, ...] = ()
    """Of a text that is not understood: all that could be a program's name. For denials."""

    def every_loose_word(self) -> Iterator[str]:
        """The loose words, and those of texts that a shell may be handed."""
        yield from self.loose_words
        for command in self.commands:
            for word in command.words:
                if word.command is not None:
                    yield from word.command.every_loose_word()

    def every_command(self) -> Iterator[SimpleCommand]:
        """The commands, and those of texts that a shell in them may be handed."""
        for command in self.commands:
            yield command
            for word in command.words:
                if word.command is not None:
                    yield from word.command.every_command()
