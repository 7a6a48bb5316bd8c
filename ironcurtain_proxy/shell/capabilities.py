"""The capabilities that a shell command may need.

The answer is coarse and errs to more: a profile may deny a capability, so each one that a command
may need is named. Only for a command that is shown to read is the answer exact.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ironcurtain_proxy.model.annotation import Capability
from ironcurtain_proxy.model.request import ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.effects import CommandEffect
from ironcurtain_proxy.shell.family_table import Task, hoisted, task_of
from ironcurtain_proxy.shell.outward import may_fetch, name_of, sub_commands, why_outward
from ironcurtain_proxy.shell.secrets import (
    is_in_git_data,
    names_a_secret,
    shows_git_configuration,
)
from ironcurtain_proxy.shell.wrappers import Unwrapped, inner_commands, unwrapped

_READS: Final[frozenset[Capability]] = frozenset({"fs.read"})
_RUNS: Final[frozenset[Capability]] = frozenset({"fs.read", "fs.write", "proc.exec"})
_DELETES: Final[Capability] = "fs.delete"
_SECRETS: Final[Capability] = "secrets.access"
_EGRESS: Final[Capability] = "net.egress"

_DELETERS: Final = words(
    """
    rm rmdir unlink shred srm trash truncate mv dd mkfs wipefs fdisk sfdisk parted mkswap rsync
    """
)
_GIT_DELETERS: Final = words("clean rm gc prune reset checkout restore stash")
_OPTIONS: Final = words("-delete --delete --remove --remove-files --remove-source-files")
_SHOW_SECRETS: Final = words("env printenv export declare typeset set security pass op vault gpg")
_DECLARE: Final = words("export declare typeset")


def needs_of(parsed: ParsedCommand, found: CommandEffect) -> frozenset[Capability]:
    """The capabilities that a command may need.

    Args:
        parsed: the command.
        found: what it can do where it runs.
    """
    if found.effect == "reads":
        return _READS
    needed = set(_RUNS)
    inner = tuple(inner_commands(parsed))
    loose = tuple(_loose(parsed))
    outward = any(part.effect == "outward" for part in found.parts)
    outward = outward or any(why_outward(one) or may_fetch(one) for one in inner)
    if outward or any(why_outward(one) or _connects(one) for one in loose):
        needed.add(_EGRESS)
    if any(map(deletes, (*inner, *loose))):
        needed.add(_DELETES)
    spoken = (*without_messages(inner), *loose)
    shown = [part.place for part in found.parts if part.place.shows_credentials]
    if any(map(touches_secrets, spoken)) or any(is_in_git_data(one.directory) for one in shown):
        needed.add(_SECRETS)
    if shown and any(shows_git_configuration(_every_word(one)) for one in spoken):
        needed.add(_SECRETS)
    return frozenset(needed)


def _loose(parsed: ParsedCommand) -> Iterator[SimpleCommand]:
    """Commands that may begin at any word of a text that is not understood."""
    found = tuple(map(Word, parsed.every_loose_word()))
    return (SimpleCommand(words=found[at : at + _LOOK_AHEAD]) for at in range(len(found)))


_LOOK_AHEAD: Final = 6


def _connects(command: SimpleCommand) -> bool:
    """Whether a text that is not understood may name `/dev/tcp`. Loose words have no slashes."""
    names = [word.text for word in command.words[:2]]
    return names in (["dev", "tcp"], ["dev", "udp"])


def deletes(command: SimpleCommand) -> bool:
    """Return whether a command may delete files, or replace them for good."""
    name = name_of(command)
    rest = command.words[1:]
    return (
        name in _DELETERS
        or (name is not None and name.startswith("mkfs."))
        or (name == "git" and bool(_GIT_DELETERS & set(sub_commands(rest)[:1])))
        or any(word.prefix in _OPTIONS for word in rest)
    )


def _every_word(command: SimpleCommand) -> tuple[Word, ...]:
    return (*command.words, *(one.target for one in command.redirections))


def touches_secrets(command: SimpleCommand) -> bool:
    """Return whether a command names what holds secrets, or shows variables that may."""
    if names_a_secret(_every_word(command)):
        return True
    if (name_of(command) in _DECLARE and _declares(command)) or _sets_options(command):
        return False
    runs_nothing = unwrapped(command) in {None, Unwrapped()}
    return runs_nothing and name_of(command) in _SHOW_SECRETS


def _declares(command: SimpleCommand) -> bool:
    """Whether `export` and the like give a variable a value, and print none."""
    return bool(command.words[1:]) and all("=" in word.prefix for word in command.words[1:])


def _sets_options(command: SimpleCommand) -> bool:
    """Whether it is `set` with options alone, such as `set -o pipefail`, which prints none."""
    rest = command.words[1:] if name_of(command) == "set" else ()
    return bool(rest) and all(
        word.text == "pipefail" or word.prefix.startswith(("-", "+")) for word in rest
    )


_SPEAKERS: Final = words("git gh glab")
"""Programs whose options take messages."""
_SILENT: Final = words("cat echo cd pwd true :")
"""Programs that use their input neither as a file name nor as code."""
_FIELDS: Final = frozenset({"-f", "--raw-field"})
"""Options of `gh api` whose value is never the name of a file."""


def without_messages(commands: Sequence[SimpleCommand]) -> tuple[SimpleCommand, ...]:
    """The commands without the messages in them, which no program opens as a file.

    `git commit -m "Read .env at the start"` names no secret. Only what is certain is left out:
    values of options that the table of families calls texts, of programs that send or store
    messages, and here-documents that reach no other program.
    """
    names = {name_of(command) for command in commands if command.words}
    return tuple(
        [_without_texts(_without_document(one) if names <= _QUIET else one) for one in commands]
    )


_QUIET: Final = _SPEAKERS | _SILENT


def _without_document(command: SimpleCommand) -> SimpleCommand:
    """The command without the text of `cat <<EOF`, if no other program could run the text."""
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
        elif not _is_message(task, name):
            yield word
        elif equals:
            yield from _file_of(Word(value))
        elif rest:
            yield from _file_of(rest.pop(0))


def _is_message(task: Task, name: str) -> bool:
    option = task.options.get(name)
    return option is not None and option.kind == "t" and not option.stays


def _file_of(value: Word) -> Iterator[Word]:
    """The file that a text names for some programs, such as `@file`; None: none."""
    if value.prefix.startswith(("@", "file:")):
        yield value
