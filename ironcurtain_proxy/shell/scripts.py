"""The files of the workspace that a command runs: by an interpreter, as a module, or by their path.

An approval of the command is one of what they say. In doubt a file is among them.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from ironcurtain_proxy.model.command import ParsedCommand, Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.effects import Part, effect_of
from ironcurtain_proxy.shell.places import is_inside, path_of

_INTERPRETERS: Final = words(
    """
    python python3 pypy3 node nodejs ruby perl php lua Rscript bash sh zsh dash ksh fish ash busybox
    ts-node tsx bun deno osascript pwsh awk gawk sed jq source .
    """
)
_VERSIONED: Final = re.compile(r"(?:python|pypy|ruby|perl|php|lua|node)[0-9.]+", re.ASCII)
_STARTERS: Final = words(
    """
    timeout gtimeout time nice ionice nohup env command exec setsid stdbuf sudo doas chroot unshare
    xargs caffeinate builtin
    """
)
_OF_A_STARTER: Final = re.compile(r"-.*|[A-Za-z_][A-Za-z0-9_]*=.*|[0-9.]+[smhd]?", re.ASCII)
_MOST_OPERANDS: Final = 3
"""Behind options it is not known which operand is the script."""


def scripts_run(parsed: ParsedCommand, place: Place) -> tuple[str, ...]:
    """The absolute paths of the files that a command runs, each once; those of readers are none."""
    return tuple(dict.fromkeys(_of_command(parsed, place)))


def _of_command(parsed: ParsedCommand, place: Place) -> Iterator[str]:
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
        if name in _INTERPRETERS or _VERSIONED.fullmatch(name):
            yield from _of_interpreter(given[place + 1 :], part.place)
    started = _started(given)
    if started is not None and "/" in started.prefix:
        yield from _inside(started, part.place)


def _started(given: Sequence[Word]) -> Word | None:
    """The program, behind those that start it."""
    is_started = False
    for word in given:
        text = word.text or ""
        if text.rpartition("/")[2] in _STARTERS:
            is_started = True
        elif not (is_started and _OF_A_STARTER.fullmatch(text)):
            return word
    return None


def _of_interpreter(given: Sequence[Word], place: Place) -> Iterator[str]:
    operands = [word for word in given if not word.prefix.startswith("-")]
    is_sure = bool(given) and given[0] in operands
    for word in operands[: 1 if is_sure else _MOST_OPERANDS]:
        yield from _inside(word, place)
    for option, module in pairwise(given):
        if option.text == "-m" and module.text:
            below = module.text.replace(".", "/")
            for name in (f"{below}.py", f"{below}/__main__.py"):
                yield from _inside(Word(name), place)


def _inside(word: Word, place: Place) -> Iterator[str]:
    path = path_of(word, place)
    if path is not None and is_inside(path, place):
        yield path
