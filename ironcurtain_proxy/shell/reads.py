"""Commands that are proved to only read.

A part of a command only reads where its program, its sub-command and each of its options stand in
the tables of `readers` and `git_readers`, and each of its operands is of the kind that the table
says. Everything else is judged by other means: the tables may be small, because a command that is
missing costs at most a question.

What stays out on purpose: programs that take code or a configuration file as an operand, programs
that read the project's own files to decide what they run (build tools, package tools, test
runners, version managers), files outside the workspace, and names that commonly hold secrets.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, assert_never

from ironcurtain_proxy.model.command import Assignment, Redirection, SimpleCommand, Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.shell.options import Options, ParsedOptions, options, read_options
from ironcurtain_proxy.shell.places import path_of, why_not_read

Operands: TypeAlias = Literal["none", "text", "names", "files", "pattern"]
"""The kind of a program's operands: `text` without effect; `names` of programs; `files` that it
reads; a `pattern` and then files."""

SHOWN_VARIABLES: Final = frozenset(
    {"PWD", "OLDPWD", "HOME", "USER", "LOGNAME", "PATH", "SHELL", "LANG", "HOSTNAME", "RANDOM",
     "LINENO", "SECONDS", "BASH_VERSION", "UID", "EUID", "PPID", "OSTYPE", "HOSTTYPE"}
)  # fmt: skip
"""Variables whose value may be shown. Others may hold a secret of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingProgram:
    """A program or a sub-command, and the conditions under which it only reads."""

    options: Options
    operands: Operands = "files"
    most: int | None = None
    """The most operands."""
    pattern_options: frozenset[str] = frozenset()
    """Options that take the place of the pattern."""
    check: Callable[[ParsedOptions], str | None] | None = None
    """A further check: gives the reason why a call is more than reading, or None."""


def reader(
    known: str = "",
    operands: Operands = "files",
    *,
    most: int | None = None,
    pattern: str = "",
    pairs: str = "",
    check: Callable[[ParsedOptions], str | None] | None = None,
) -> ReadingProgram:
    """A reader, its options as a text for `options`."""
    return ReadingProgram(
        options=replace(options(known), pairs=frozenset(pairs.split())),
        operands=operands,
        most=most,
        pattern_options=frozenset(pattern.split()),
        check=check,
    )


def why_not_reader(
    found: ReadingProgram, words: Sequence[Word], place: Place, variables: frozenset[str]
) -> str | None:
    """The reason why a call of the program does more than read; None: it only reads.

    Args:
        found: the program's entry in the table.
        words: the words behind its name.
        place: the directories around it.
        variables: those whose value may be shown.
    """
    reading = read_options(found.options, words, globs=_reads_each(found))
    if isinstance(reading, str):
        return reading
    if found.most is not None and len(reading.operands) > found.most:
        return "it has more operands than reading takes"
    for name, value in reading.options:
        if value is not None and not value.variables <= variables:
            return "it shows a variable"
        if name in found.options.files and value is not None:
            reason = why_not_read(value, place)
            if reason is not None:
                return reason
    reason = _operands(found, reading, place, variables)
    if reason is None and found.check is not None:
        reason = found.check(reading)
    return reason


def _reads_each(found: ReadingProgram) -> bool:
    """Whether each operand is a file to read, so that their number does not matter.

    Behind a pattern, no check looks at the files.
    """
    return found.most is None and (
        found.operands == "pattern" or (found.operands == "files" and found.check is None)
    )


def _operands(
    found: ReadingProgram, reading: ParsedOptions, place: Place, variables: frozenset[str]
) -> str | None:
    operands = reading.operands
    match found.operands:
        case "none":
            return "it has an operand" if operands else None
        case "text":
            return shows_variables(operands, variables)
        case "names":
            known = all(word.text is not None for word in operands)
            return None if known else "it has an operand that is not known"
        case "files" | "pattern":
            given = reading.has(*found.pattern_options)
            skipped = 1 if found.operands == "pattern" and not given else 0
            if any(word.splits for word in operands[:skipped]):
                return "its pattern is not known"
            reason = shows_variables(operands[:skipped], variables)
            reasons = (why_not_read(word, place) for word in operands[skipped:])
            return reason or next((one for one in reasons if one is not None), None)
        case _:
            assert_never(found.operands)


def shows_variables(words: Sequence[Word], variables: frozenset[str]) -> str | None:
    """The reason why printing these words shows a variable's value; None: it shows none."""
    if any(not word.variables <= variables for word in words):
        return "it shows a variable"
    return None


_HARMLESS: Final = re.compile(r"LC_[A-Z]+|LANG|LANGUAGE|TZ|NO_COLOR|CLICOLOR|COLUMNS|IFS")
_CATS: Final = frozenset({"GIT_PAGER", "PAGER", "GH_PAGER"})
LOCAL_NAME: Final = re.compile(
    r"(?!path$|fpath$|cdpath$|manpath$|module_path$|mailpath$|.*proxy$|prompt$|argv$|status$)"
    r"[a-z]\w*",
    re.ASCII,
)
"""Variables that the shell itself may be given. Some lower-case ones mean something to zsh."""


def assigned(commands: Sequence[SimpleCommand]) -> frozenset[str]:
    """The variables that the commands themselves set: from their own text, or by `read`."""
    known = SHOWN_VARIABLES
    for command in commands:
        if command.words[:1] == (Word("read"),):
            known |= {word.text for word in command.words[1:] if word.text is not None}
        if not command.words:
            known |= {one.name for one in command.assignments if one.value.variables <= known}
    return known


def why_not_assign(one: Assignment, *, alone: bool, variables: frozenset[str]) -> str | None:
    """The reason why an assignment can change what programs do; None: it cannot."""
    if alone and LOCAL_NAME.fullmatch(one.name) and one.value.variables <= variables:
        return None
    if not alone and one.value.text is not None:
        if _HARMLESS.fullmatch(one.name) and _is_plain(one.name, one.value.text):
            return None
        if one.name in _CATS and one.value.text in {"cat", ""}:
            return None
    return "a variable is set that may change what programs do"


def _is_plain(name: str, value: str) -> bool:
    """Whether a value of a harmless variable names no file.

    The C library opens `LANGUAGE=../x` and `LC_ALL=/x` as files of translations: text that
    programs use as formats. `TZ=:/x` is a file too.
    """
    if name == "TZ":
        return not value.startswith(("/", ":")) and ".." not in value
    return "/" not in value or name == "IFS"


def why_not_redirect(one: Redirection, place: Place, variables: frozenset[str]) -> str | None:
    """The reason why a redirection does more than read; None: it only reads."""
    target = one.target
    match one.operator:
        case "<&-" | ">&-":
            return None
        case "<<" | "<<<":
            return shows_variables([target], variables)
        case "<":
            return why_not_read(target, place)
        case ">&" | "<&" if (target.text or "").isascii() and (target.text or "").isdigit():
            return None
        case ">" | ">>" | "&>" | "&>>" | ">|" | ">&" if target.text == "/dev/null":
            return None
        case _:
            return "output is written to a file"


def directory_after(rest: Sequence[Word], place: Place) -> str | None:
    """The directory that a `cd` leads to; None if that is not known."""
    operands = [word for word in rest if word.text != "--"]
    if len(operands) != 1 or (operands[0].text or "-").startswith("-"):
        return None
    return path_of(operands[0], place)
