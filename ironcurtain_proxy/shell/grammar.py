"""The grammar of a program's options, and the words of a command read by it.

One notation states it, for all tables of `programs.toml` (its top explains the notation). A word is
an option, the value of an option, or an operand only where the grammar says so for certain. An
option that it does not state, an abbreviated one, a value that could be an option, or a word that
only the shell knows, makes the reading fail: callers then treat the command as not understood.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ironcurtain_proxy.model.request import Word

Arity: TypeAlias = Literal["none", "value", "attached", "optional", "separate", "pair"]
"""The value of an option: `attached` needs one in the same word, `optional` may have one there,
`separate` needs the next word, `value` either, `pair` the next two words."""


class Option(Struct, frozen=True):
    """One option of a program."""

    arity: Arity = "none"
    kind: str = ""
    """The letter of the kind of its value; m: a message, which may be only known at run time."""
    stays: bool = False
    """Whether it stays in a family."""
    is_pattern: bool = False
    """Whether its value takes the place of the pattern that is the first operand."""


class Grammar(Struct, frozen=True):
    """The options that a program may be given, by name."""

    options: Mapping[str, Option] = msgspec.field(default_factory=dict)
    number: bool = False
    """Whether a number such as `-5` is an option."""
    bundles: bool = True
    """Whether short options may be joined in one word."""
    permutes: bool = True
    """Whether options may follow operands."""


class ParsedOptions(Struct, frozen=True):
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


_TOKEN: Final = re.compile(
    r"(?P<marks>[!^]*)(?P<name>-[^\s=~\[]+)"
    r"(?:(?P<form>==|=|~)(?P<kind>[a-z]{0,2})|\[(?P<optional>[a-z])\])?"
)


def grammar_of(text: str) -> Grammar:
    """Return the grammar that a text states; words of it that state no option are passed over."""
    found: dict[str, Option] = {}
    marks: set[str] = set()
    for token in text.split():
        match = _TOKEN.fullmatch(token)
        if match is None or token == "-#":  # noqa: S105  no password
            marks.add(token)
            continue
        arity: Arity = "none"
        kind = match["kind"] or match["optional"] or ""
        if match["optional"]:
            arity = "optional"
        elif match["form"]:
            arity = _FORMS[match["form"]] if len(kind) < _PAIR else "pair"
        given = match["marks"]
        found.setdefault(match["name"], Option(arity, kind, "!" in given, "^" in given))
    return Grammar(found, "-#" in marks, "(alone)" not in marks, "(ordered)" not in marks)


_FORMS: Final[Mapping[str, Arity]] = {"==": "attached", "=": "value", "~": "separate"}
_SHORT: Final = 2
_PAIR: Final = 2
_NUMBER: Final = re.compile(r"[+-]?\d+", re.ASCII)


def read_options(
    known: Grammar, rest: Sequence[Word], *, globs: bool = False
) -> ParsedOptions | str:
    """Return the words as options and operands, or the reason why they cannot be parsed.

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
        if operands and not known.permutes and word.prefix.startswith("-"):
            # Also `--`: to some programs it is another operand there.
            return "an option behind an operand is not understood"
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


_Taken: TypeAlias = tuple[list[tuple[str, Word | None]], int]
"""The options in a word, and the number of words behind it that are values."""


def _option(known: Grammar, text: str, following: Sequence[Word]) -> _Taken | str:
    if known.number and text[1:].isascii() and text[1:].isdigit():
        return [("-#", Word(text[1:]))], 0
    name, equals, value = text.partition("=")
    option = known.options.get(name)
    is_long = text.startswith("--") or (len(name) > _SHORT and option is not None)
    if option is not None and (is_long or text == name):
        return _valued(option, name, value if equals else None, following)
    if is_long or (not known.bundles and len(text) > _SHORT and not _has_value(known, text)):
        return f"the option {name} is not known to only read"
    return _cluster(known, text, following)


def _has_value(known: Grammar, text: str) -> bool:
    """Return whether a word is one short option with its value attached."""
    option = known.options.get(text[:_SHORT])
    return option is not None and option.arity in {"value", "attached", "optional"}


def _cluster(known: Grammar, text: str, following: Sequence[Word]) -> _Taken | str:
    """Return short options joined in one word, of which the last one may have a value."""
    found: list[tuple[str, Word | None]] = []
    for at, letter in enumerate(text[1:], start=2):
        name = f"-{letter}"
        option = known.options.get(name)
        if option is None:
            return f"the option {name} is not known to only read"
        if option.arity == "none":
            found.append((name, None))
            continue
        taken = _valued(option, name, text[at:] or None, following)
        return taken if isinstance(taken, str) else ([*found, *taken[0]], taken[1])
    return found, 0


def _valued(
    option: Option, name: str, attached: str | None, following: Sequence[Word]
) -> _Taken | str:
    """Return an option with its value, by the arity that the grammar states."""
    match option.arity, attached:
        case ("none" | "optional", None):
            return [(name, None)], 0
        case ("optional" | "attached" | "value", str()):
            return [(name, Word(attached or ""))], 0
        case ("separate" | "value" | "pair", None):
            width = _PAIR if option.arity == "pair" else 1
            given = following[:width]
            is_message = option.kind == "m" and bool(given) and not given[0].splits
            if len(given) < width or (not is_message and any(map(_could_be_an_option, given))):
                return f"the value of {name} is not understood"
            return [(name, given[-1])], width
        case _:
            return f"the value of {name} is not understood"


def _could_be_an_option(word: Word) -> bool:
    """Return whether a value could be taken for an option, or for several words.

    Implementations differ in whether an option takes a value: a value that is no option to any of
    them cannot bring one in. A number is none.
    """
    if word.splits or (word.text is None and word.prefix[:1] in {"", "-"}):
        return True
    is_option = word.prefix.startswith("-") and len(word.prefix) > 1
    return is_option and not _NUMBER.fullmatch(word.text or "")
