"""Messages in shell commands: texts for people, which no program opens as a file.

`git commit -m "Read .env at the start"` names no secret. Only what is certain is left out: values
of options that the table of families calls texts, of programs that send or store messages, and
here-documents that reach no other program.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ironcurtain_proxy.model.command import SimpleCommand, Word
from ironcurtain_proxy.shell.family_table import Task, hoisted, task_of
from ironcurtain_proxy.shell.options import words
from ironcurtain_proxy.shell.outward import name_of

_SPEAKERS: Final = words("git gh glab")
"""Programs whose options take messages."""
_SILENT: Final = words("cat echo cd pwd true :")
"""Programs that use their input neither as a file name nor as code."""
_FIELDS: Final = frozenset({"-f", "--raw-field"})
"""Options of `gh api` whose value is never the name of a file."""


def without_messages(commands: Sequence[SimpleCommand]) -> tuple[SimpleCommand, ...]:
    """The commands without the messages in them."""
    names = {name_of(command) for command in commands if command.words}
    return tuple(
        [_without_texts(_without_document(one) if names <= _QUIET else one) for one in commands]
    )


_QUIET: Final = _SPEAKERS | _SILENT


def _without_document(command: SimpleCommand) -> SimpleCommand:
    """`cat <<EOF` without its text, where no other program of the command could run the text."""
    if name_of(command) != "cat" or len(command.words) > 1:
        return command
    kept = [one for one in command.redirections if one.operator not in {"<<", "<<<"}]
    return replace(command, redirections=tuple(kept))


def _without_texts(command: SimpleCommand) -> SimpleCommand:
    if name_of(command) not in _SPEAKERS:
        return command
    given = hoisted(command.words)
    task = task_of(tuple(word.text or "" for word in given))
    if task is None:
        return command
    return replace(command, words=(*given[: len(task.path)], *_named(task, given)))


def _named(task: Task, given: Sequence[Word]) -> Iterator[Word]:
    """The words of a command without its messages."""
    rest = list(given[len(task.path) :])
    while rest:
        word = rest.pop(0)
        name, equals, value = word.prefix.partition("=")
        if task.path[:2] == ("gh", "api") and name in _FIELDS and rest:
            yield Word(rest.pop(0).prefix.partition("=")[0])
        elif task.options.get(name) != "text=" or not name.startswith("-"):
            yield word
        elif equals:
            yield from _file_of(Word(value))
        elif rest:
            yield from _file_of(rest.pop(0))


def _file_of(value: Word) -> Iterator[Word]:
    """The file that a text names for some programs, such as `@file`; None: none."""
    if value.prefix.startswith(("@", "file:")):
        yield value
