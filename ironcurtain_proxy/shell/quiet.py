"""What a command does beside its main part, on this machine alone.

Some parts of a command run no other program, so that the sandbox holds their effects. Such a part
may stand beside an approved one that reaches out, as in `git fetch origin && git merge
origin/main`, without an approval of its own: it has no use for the network that is open meanwhile,
and the timeline takes back what it changes. The table is short. A program that runs code of the
project, by a script, a hook or an option, is missing on purpose.

A command may run files of the workspace: by an interpreter, as a module, or by their path. An
approval of the command is one of what they say. In doubt a file is among them.

One part may change the meaning of another. The meaning of `npm test` is looked up before the
command runs; in `cp x package.json && npm test` it has changed by the time that the part runs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from msgspec import convert
from msgspec.structs import replace

from ironcurtain_proxy.model.request import (
    Assignment,
    CommandPlace,
    ParsedCommand,
    Redirection,
    SimpleCommand,
    Word,
)
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.effects import Part, effect_of, effect_of_part
from ironcurtain_proxy.shell.family_table import is_free_path
from ironcurtain_proxy.shell.grammar import LOCAL_NAME, SHOWN_VARIABLES, is_of_no_file
from ironcurtain_proxy.shell.outward import sub_commands
from ironcurtain_proxy.shell.places import (
    is_inside,
    is_of_project,
    may_write,
    names_a_secret,
    path_of,
)
from ironcurtain_proxy.shell.programs import paths, word_lists, word_set

_QUIET_GIT: Final = word_lists("quiet-git")
"""The options of git's sub-commands that run nothing."""
_FILES: Final = words("mkdir touch cp mv rm rmdir")
_FLAGS: Final = re.compile(r"-[A-Za-z]+|--[a-z-]+")
_LETTERS: Final = re.compile(r"-[A-Za-z]+")
_OPERAND: Final = re.compile(r"[^-].*", re.DOTALL)


def is_quiet(part: Part) -> bool:
    """Return whether a part changes files of the workspace, and can do nothing else."""
    command, place = part.command, part.place
    if part.effect != "local" or not is_of_project(place.directory or "", place):
        return False
    are_quiet = all(_is_quiet_redirection(r, place) for r in command.redirections)
    if not are_quiet or names_a_secret(command.words):
        return False
    if command.assignments:
        return not command.words and all(
            _keeps_an_answer(one, command) for one in command.assignments
        )
    if part.program == "git":
        return place.has_repository and not place.runs_hooks and _is_quiet_git(command.words[1:])
    if part.program in _FILES:
        return _works_on_files(command, place)
    # `echo x > notes.txt` only shows something, but for its redirection.
    alone = replace(command, redirections=())
    return bool(command.words) and effect_of_part(alone, place) == "reads"


def _keeps_an_answer(one: Assignment, command: SimpleCommand) -> bool:
    """Return whether an assignment keeps another part's output, and steers nothing."""
    is_plain = _ANSWER.fullmatch(one.name) or LOCAL_NAME.fullmatch(one.name)
    is_known = one.value.variables <= command.set_before | SHOWN_VARIABLES
    return bool(is_plain) and is_known and not names_a_secret([one.value])


_ANSWER: Final = re.compile(
    r"TOKEN|(?:[A-Z0-9]+_)*(?:RESP|RESPONSE|RESULT|OUT|OUTPUT|STATUS|CODE|BODY|JSON|OTP|PID|ID"
    r"|PUBKEY|COUNT|HASH|SHA)"
)


def _is_quiet_git(given: Sequence[Word]) -> bool:
    known = _QUIET_GIT.get(given[0].text or "") if given else None
    if known is None:
        return False
    if any(word.splits and word.variables for word in given):
        return False
    texts = [word.prefix for word in given[1:]]
    return all(
        text.partition("=")[0] in known
        or _OPERAND.fullmatch(text)
        or not text
        or _are_known_letters(text, known)
        for text in texts
    )


def _are_known_letters(text: str, known: frozenset[str]) -> bool:
    """Return whether short options joined in one word, such as `-qam`, are all among the known."""
    return bool(_LETTERS.fullmatch(text)) and all(f"-{letter}" in known for letter in text[1:])


def _works_on_files(command: SimpleCommand, place: CommandPlace) -> bool:
    if command.words[0].text not in _FILES:
        return False
    rest = command.words[1:]
    operands = [word for word in rest if not word.prefix.startswith("-")]
    flags = [word for word in rest if word.prefix.startswith("-")]
    return (
        bool(operands)
        and all(word.text is not None and _FLAGS.fullmatch(word.text) for word in flags)
        and all(word.text is not None and is_free_path(word, place) for word in operands)
    ) or _removes_a_lock(command.words, place)


def _removes_a_lock(given: Sequence[Word], place: CommandPlace) -> bool:
    """Return whether a command only removes the lock that a stopped git has left."""
    match [word.text for word in given]:
        case ["rm", _] | ["rm", "-f", _]:
            return path_of(given[-1], place) == f"{place.workspace}/.git/index.lock"
        case _:
            return False


def _is_quiet_redirection(one: Redirection, place: CommandPlace) -> bool:
    text = one.target.text
    if is_of_no_file(one) or one.operator in {"<<", "<<<"}:
        return True
    if text is None or names_a_secret([one.target]):
        return False
    path = path_of(one.target, place)
    # What a server has for itself under `/tmp` nobody else reads.
    is_own = path is not None and may_write(path, place) and not is_inside(path, place)
    return is_own or is_free_path(one.target, place)


# --- scripts


_VERSIONED: Final = re.compile(r"(?:python|pypy|ruby|perl|php|lua|node)[0-9.]+", re.ASCII)
_OF_A_STARTER: Final = re.compile(r"-.*|[A-Za-z_][A-Za-z0-9_]*=.*|[0-9.]+[smhd]?", re.ASCII)
_MOST_OPERANDS: Final = 3
"""Behind options it is not known which operand is the script."""


def scripts_run(parsed: ParsedCommand, place: CommandPlace) -> tuple[str, ...]:
    """Return the absolute paths of the files that a command runs, each once.

    Those of readers are none.
    """
    return tuple(dict.fromkeys(_of_command(parsed, place)))


def _of_command(parsed: ParsedCommand, place: CommandPlace) -> Iterator[str]:
    for part in effect_of(parsed, place).parts:
        if part.effect != "reads":
            yield from _of_part(part)
    # Of the text behind `sh -c` the parts are known, but not where each runs: `cd x; ./y`.
    for one in parsed.commands:
        for word in one.words:
            if word.command is not None and word.command.unreadable is None:
                yield from _of_command(word.command, place)


def _of_part(part: Part) -> Iterator[str]:
    given = part.command.words
    for place, word in enumerate(given):
        name = (word.text or "").rpartition("/")[2]
        if name in word_set("interpreters") or _VERSIONED.fullmatch(name):
            yield from _of_interpreter(given[place + 1 :], part.place)
    started = _started(given)
    if started is not None and "/" in started.prefix:
        yield from _inside(started, part.place)


def _started(given: Sequence[Word]) -> Word | None:
    """Return the program, behind those that start it."""
    is_started = False
    for word in given:
        text = word.text or ""
        if text.rpartition("/")[2] in word_set("starters"):
            is_started = True
        elif not (is_started and _OF_A_STARTER.fullmatch(text)):
            return word
    return None


def _of_interpreter(given: Sequence[Word], place: CommandPlace) -> Iterator[str]:
    operands = [word for word in given if not word.prefix.startswith("-")]
    is_sure = bool(given) and given[0] in operands
    for word in operands[: 1 if is_sure else _MOST_OPERANDS]:
        yield from _inside(word, place)
    for option, module in pairwise(given):
        if option.text == "-m" and module.text:
            below = module.text.replace(".", "/")
            for name in (f"{below}.py", f"{below}/__main__.py"):
                yield from _inside(Word(name), place)


def _inside(word: Word, place: CommandPlace) -> Iterator[str]:
    path = path_of(word, place)
    if path is not None and is_inside(path, place):
        yield path


# --- disturbances


Disturbance: TypeAlias = Literal["files", "branch", "remotes", "shell"]
"""The changed thing: files of the project, the current branch, the remotes, or the shell itself."""

_SHELL: Final = word_set("changes-the-shell")

_DISTURBING_GIT: Final[Mapping[str, frozenset[Disturbance]]] = {
    name: convert(text.split(), frozenset[Disturbance])
    for (name,), text in paths("disturbing-git").items()
}
"""The changes by sub-command of git; other sub-commands may change everything."""


def disturbances(parts: Iterable[Part]) -> frozenset[Disturbance]:
    """Return the changes that these parts may make."""
    return frozenset().union(*[_of(part) for part in parts])


def _of(part: Part) -> frozenset[Disturbance]:
    name = part.program
    if not part.command.words or name in _SHELL:
        activates = name in {"source", "."} and (
            part.command.words[1:2] and part.command.words[1].prefix.endswith("/bin/activate")
        )
        return frozenset() if activates else frozenset({"files", "branch", "remotes", "shell"})
    if name == "git":
        command = "".join(sub_commands(part.command.words[1:])[:1])
        return _DISTURBING_GIT.get(command, frozenset({"files", "branch", "remotes"}))
    writes = any(
        one.operator not in {"<", "<<", "<<<"} and not is_of_no_file(one)
        for one in part.command.redirections
    )
    return frozenset({"files"}) if writes or name in word_set("placers") else frozenset()
