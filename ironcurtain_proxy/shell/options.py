"""Options of a program, read strictly.

A word is an option, the value of an option, or an operand only where every implementation of the
program must agree. An unknown option, an abbreviated one, or a word that only the shell knows and
that could become an option, makes the reading fail. Callers then treat the command as one whose
effect is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.model.command import Word


@dataclass(frozen=True, slots=True)
class Options:
    """The options that a program may be given."""

    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    """Options that need a value: `-n 5`, `-n5`, `--lines 5`, `--lines=5`."""
    optional: frozenset[str] = frozenset()
    """Long options that may have a value behind `=`."""
    files: frozenset[str] = frozenset()
    """The options of `values` whose value is a file that the program reads."""
    number: bool = False
    """Whether a number such as `-5` is an option."""
    pairs: frozenset[str] = frozenset()
    """Long options that take two words: a name and its value."""


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """The words of a command as options and operands."""

    options: tuple[tuple[str, Word | None], ...]
    """Name and value, in the order given."""
    operands: tuple[Word, ...]

    def has(self, *names: str) -> bool:
        """Whether one of the options is given."""
        return any(name in names for name, _ in self.options)

    def values_of(self, *names: str) -> tuple[Word, ...]:
        """The values of these options."""
        return tuple(word for name, word in self.options if name in names and word is not None)


def options(text: str) -> Options:
    """Options from a text with blanks between them.

    `v` is `-v`; `n:` is `-n VALUE`; `lines:` is `--lines VALUE`; `color?` is `--color[=WHEN]`;
    `f@` is `-f FILE`; `#` is a number such as `-5`.
    """
    flags: set[str] = set()
    values: set[str] = set()
    optional: set[str] = set()
    files: set[str] = set()
    number = False
    for item in text.split():
        if item == "#":
            number = True
            continue
        name = item.rstrip(":?@")
        dashed = f"-{name}" if len(name) == 1 else f"--{name}"
        if item.endswith("@"):
            files.add(dashed)
        if item.endswith((":", "@")):
            values.add(dashed)
        elif item.endswith("?"):
            optional.add(dashed)
            flags.add(dashed)
        else:
            flags.add(dashed)
    return Options(
        frozenset(flags), frozenset(values), frozenset(optional), frozenset(files), number
    )


_SHORT: Final = 2
_PAIR: Final = 2


def read_options(
    known: Options, rest: Sequence[Word], *, globs: bool = False
) -> ParsedOptions | str:
    """The words as options and operands, or the reason why they cannot be parsed.

    Args:
        known: the options of the program.
        rest: the words behind its name.
        globs: whether an operand may stand for several files.
    """
    found: list[tuple[str, Word | None]] = []
    operands: list[Word] = []
    at = 0
    while at < len(rest):
        word = rest[at]
        at += 1
        if word.text == "--":
            operands += rest[at:]
            break
        several = word.splits and not (globs and word.is_glob)
        if several or (word.text is None and word.prefix[:1] in {"", "-"}):
            return "a word that only the shell knows could be an option"
        if word.text is None or len(word.text) < _SHORT or word.text[0] != "-":
            operands.append(word)
            continue
        taken = _option(known, word.text, rest[at : at + _PAIR])
        if isinstance(taken, str):
            return taken
        found += taken[0]
        at += taken[1]
    if any(word.splits and not (globs and word.is_glob) for word in operands):
        return "a word that only the shell knows could be several"
    return ParsedOptions(tuple(found), tuple(operands))


def _option(
    known: Options, text: str, following: Sequence[Word]
) -> tuple[list[tuple[str, Word | None]], int] | str:
    """The options in a word, and the number of words behind it that are values."""
    if text in known.pairs:
        if len(following) < _PAIR or following[0].text is None or following[1].splits:
            return f"{text} has no value"
        return [(text, following[1])], _PAIR
    taken = _long(known, text) if text.startswith("--") else _cluster(known, text)
    if isinstance(taken, str):
        return taken
    names, value, needs = taken
    found: list[tuple[str, Word | None]] = [(name, None) for name in names[:-1]]
    if not needs or value is not None:
        return [*found, (names[-1], None if value is None else Word(value))], 0
    if not following or following[0].splits:
        return f"{names[-1]} has no value"
    return [*found, (names[-1], following[0])], 1


_Taken = tuple[list[str], str | None, bool]


def _long(known: Options, text: str) -> _Taken | str:
    name, equals, value = text.partition("=")
    if name in known.values:
        return [name], (value if equals else None), True
    if name in known.flags and (not equals or name in known.optional):
        return [name], (value if equals else None), False
    return f"the option {name} is not known to only read"


def _cluster(known: Options, text: str) -> _Taken | str:
    if known.number and text[1:].isascii() and text[1:].isdigit():
        return ["-#"], text[1:], False
    names: list[str] = []
    for at, letter in enumerate(text[1:], start=2):
        name = f"-{letter}"
        names.append(name)
        if name in known.values:
            return names, (text[at:] or None), True
        if name not in known.flags:
            return f"the option {name} is not known to only read"
    return names, None, False
