"""The grammar of a program's options, and the words of a command read by it.

One notation states it, for all tables of `programs.toml` (its top explains the notation). A word is
an option, the value of an option, or an operand only where the grammar says so for certain. An
option that it does not state, an abbreviated one, a value that could be an option, or a word that
only the shell knows, makes the reading fail: callers then treat the command as not understood.

Commands that are proved to only read.

A part of a command only reads where its program, its sub-command and each of its options stand in
the table of `programs.toml`, and each of its operands is of the kind that the table
says. Everything else is judged by other means: the tables may be small, because a command that is
missing costs at most a question.

What stays out on purpose: programs that take code or a configuration file as an operand, programs
that read the project's own files to decide what they run (build tools, package tools, test
runners, version managers), files outside the workspace, and names that commonly hold secrets.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias, assert_never, get_args

import msgspec
from msgspec import Struct

from ironcurtain_proxy.model.request import Assignment, CommandPlace, Redirection, Word
from ironcurtain_proxy.shell.places import names_a_secret, path_of, why_not_list, why_not_read
from ironcurtain_proxy.shell.programs import entries, expanded, word_set

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
        """Return whether one of the options is given."""
        return any(name in names for name, _ in self.options)

    def values_of(self, *names: str) -> tuple[Word, ...]:
        """Return the values of these options."""
        return tuple(word for name, word in self.options if name in names and word is not None)


_TOKEN: Final = re.compile(
    r"(?P<marks>[!^]*)(?P<name>-[^\s=~\[]*)"
    r"(?:(?P<form>==|=|~)(?P<kind>[a-z]{0,2})|\[(?P<optional>[a-z])\])?"
)


@functools.cache
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
_WIDTHS: Final[Mapping[Arity, int]] = {"separate": 1, "value": 1, "pair": _PAIR}
_NUMBER: Final = re.compile(r"[+-]?\d+", re.ASCII)


def with_values(
    words: Sequence[Word], options: Collection[str]
) -> Iterator[tuple[Word, str, Word | None, int]]:
    """Yield the words of a command of which only the options with a value are known.

    Each comes with its name and value as an option, and the place behind both. The value stands
    behind `=`, or is the next word.

    Args:
        words: behind the program.
        options: those whose value may be the next word. A word that is only known when the command
            runs takes none.
    """
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, joined = word.prefix.partition("=")
        takes_next = name in options and word.text == name
        value = Word(joined) if equals else next(iter(words[at + 1 : at + 2 * takes_next]), None)
        at += 1 + takes_next
        yield word, name, value, at


class GivenOption(Struct, frozen=True):
    """An option as the grammar states it, with its value where it has one."""

    word: Word
    """The word that it stands in, alone or joined with others."""
    name: str
    option: Option
    value: Word | None = None
    behind: tuple[Word, ...] = ()
    """The words behind it that are its value."""
    sign: str = ""
    """The `=` of `-n=5`, which some programs take for a part of the value."""


class UnknownOption(Struct, frozen=True):
    """An option that the grammar does not state, or states with another arity."""

    word: Word
    name: str
    """`-x` for an option joined with others."""
    attached: str
    """The known beginning of what stands behind the name in the same word."""
    option: Option | None
    """The option of that name, of another arity."""


class Operand(Struct, frozen=True):
    """A word that is no option, unless the shell makes one of it."""

    word: Word


class EndOfOptions(Struct, frozen=True):
    """The word `--`. What stands behind it is not read."""


CommandItem: TypeAlias = GivenOption | UnknownOption | Operand | EndOfOptions
"""A part of a command line, as the grammar reads it."""


def read_items(known: Grammar, words: Sequence[Word]) -> Iterator[tuple[int, CommandItem]]:
    """Yield the options and operands of a command, each with the number of words up to it.

    What an option means that the grammar does not state is for the reader to say: the word behind
    it is the next item.

        -v -n=    `-vn 5 x`     -v, -n with the value 5, the operand x
        -v        `-v --out x`  -v, the unknown --out, the operand x
    """
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.text == "--":
            yield at, EndOfOptions()
            return
        if not word.prefix.startswith("-") or word.text == "-":
            yield at, Operand(word)
            continue
        for item in _options_in(known, word, words[at : at + _PAIR]):
            at += len(item.behind) if isinstance(item, GivenOption) else 0
            yield at, item


def _options_in(
    known: Grammar, word: Word, following: Sequence[Word]
) -> Iterator[GivenOption | UnknownOption]:
    text = word.prefix
    name, equals, value = text.partition("=")
    if known.number and word.text is not None and text[1:].isascii() and text[1:].isdigit():
        yield GivenOption(word, "-#", Option(), Word(text[1:]))
        return
    option = known.options.get(name)
    is_long = text.startswith("--") or (len(name) > _SHORT and option is not None)
    if is_long or (not known.bundles and len(text) > _SHORT and not _has_value(known, text)):
        yield _valued(word, name, option, value if equals else None, following)
        return
    # Short options joined in one word, of which the last one may have a value.
    joined: list[GivenOption | UnknownOption] = []
    for at, letter in enumerate(text[1:], start=_SHORT):
        name, rest = f"-{letter}", text[at:]
        option = known.options.get(name)
        if option is None or option.arity != "none":
            sign = "=" if at == _SHORT and rest.startswith("=") else ""
            joined.append(_valued(word, name, option, rest[len(sign) :] if rest else None,
                                  following, sign))  # fmt: skip
            break
        joined.append(GivenOption(word, name, option))
    else:
        if word.text is None:
            joined.append(UnknownOption(word, name, "", None))
    # A letter that is not understood may be one of a longer name, or of a value.
    yield from joined[-1:] if isinstance(joined[-1], UnknownOption) else joined


def _has_value(known: Grammar, text: str) -> bool:
    """Return whether a word is one short option with its value attached."""
    option = known.options.get(text[:_SHORT])
    return option is not None and option.arity in {"value", "attached", "optional"}


def _valued(
    word: Word,
    name: str,
    option: Option | None,
    attached: str | None,
    following: Sequence[Word],
    sign: str = "",
) -> GivenOption | UnknownOption:
    """Return an option with its value, by the arity that the grammar states."""
    unknown = UnknownOption(word, name, sign + (attached or ""), option)
    if option is None or (attached is None and word.text is None):
        return unknown
    if attached is None and option.arity in {"none", "optional"}:
        return GivenOption(word, name, option)
    if attached is not None and option.arity in {"optional", "attached", "value"}:
        value = Word(attached) if word.text is not None else Word(None, f"{attached}*")
        return GivenOption(word, name, option, value, sign=sign)
    width = _WIDTHS.get(option.arity, 0) if attached is None else 0
    behind = tuple(following[:width])
    if not behind or len(behind) < width:
        return unknown
    return GivenOption(word, name, option, behind[-1], behind)


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
    for at, item in read_items(known, rest):
        is_dashed = not isinstance(item, Operand) or item.word.prefix.startswith("-")
        if operands and not known.permutes and is_dashed:
            # Also `--`: to some programs it is another operand there.
            return "an option behind an operand is not understood"
        if isinstance(item, EndOfOptions):
            operands += rest[at:]
            break
        word = item.word
        several = word.splits and not (globs and word.is_glob)
        if several or (word.text is None and word.prefix[:1] in {"", "-"}):
            return "a word that only the shell knows could be an option"
        if isinstance(item, Operand):
            operands.append(word)
            continue
        reason = _why_unclear(item)
        if reason or isinstance(item, UnknownOption):
            return reason
        value = item.value
        found.append((item.name, Word(f"={value.text}") if value and item.sign else value))
    if any(word.splits and not (globs and word.is_glob) for word in operands):
        return "a word that only the shell knows could be several"
    return ParsedOptions(tuple(found), tuple(operands))


def _why_unclear(item: GivenOption | UnknownOption) -> str:
    """Return why an option may be another one than the grammar states, or nothing if it is none."""
    if isinstance(item, UnknownOption):
        if item.option is None:
            return f"the option {item.name} is not known to only read"
    else:
        is_message = item.option.kind == "m" and not any(word.splits for word in item.behind[:1])
        if is_message or not any(map(_could_be_an_option, item.behind)):
            return ""
    return f"the value of {item.name} is not understood"


def behind_options(known: Grammar, given: Sequence[Word]) -> Sequence[Word] | None:
    """Return the words from the first that is no option, or None if one may be another option."""
    for at, item in read_items(known, given):
        if isinstance(item, EndOfOptions):
            return given[at:]
        if isinstance(item, Operand):
            if item.word.text == "-":
                continue
            is_plain = item.word.text is not None and not item.word.text.startswith("+")
            return given[at - 1 :] if is_plain else None
        # Of `--name="$x"` the value alone is not known.
        is_known = item.word.text is not None or (
            item.name.startswith("--") and not item.word.splits
        )
        if _why_unclear(item) or not is_known:
            return None
    return ()


def _could_be_an_option(word: Word) -> bool:
    """Return whether a value could be taken for an option, or for several words.

    Implementations differ in whether an option takes a value: a value that is no option to any of
    them cannot bring one in. A number is none.
    """
    if word.splits or (word.text is None and word.prefix[:1] in {"", "-"}):
        return True
    is_option = word.prefix.startswith("-") and len(word.prefix) > 1
    return is_option and not _NUMBER.fullmatch(word.text or "")


# --- reads


SHOWN_VARIABLES: Final = word_set("shown-variables")
"""Variables whose value may be shown. Others may hold a secret of the server."""


Operands: TypeAlias = Literal["none", "text", "names", "files", "listed", "pattern"]
Check: TypeAlias = Callable[[ParsedOptions], str | None]
"""A further check: gives the reason why a call is more than reading, or None."""


class ReadingProgram(Struct, frozen=True):
    """A program or a sub-command, and the conditions under which it only reads."""

    grammar: Grammar
    operands: Operands
    most: int | None
    """The most operands."""
    check: str
    """The name of a further check, or empty if there is none."""
    here: tuple[str, ...] | None = None
    """The options with which it looks at the current directory where no file is named; empty: it
    does so without one, or None if it never does."""


@functools.cache
def reading_program(name: str) -> ReadingProgram | None:
    """Return the entry of a program, or of a program with its sub-command; None: there is none."""
    text = entries("reads").get(name)
    if text is None:
        return None
    text = expanded(text)
    kind, _, most = next(iter(_OPERANDS.findall(text)), "text").partition(":")
    check = _CHECK.search(text)
    here = _HERE.search(text)
    return ReadingProgram(
        grammar_of(text),
        _KINDS[kind],
        int(most) if most else None,
        "" if check is None else check[1],
        None if here is None else tuple(filter(None, (here[1] or "").split(","))),
    )


_OPERANDS: Final = re.compile(r"\(((?:none|text|names|files|listed|pattern)(?::\d+)?)\)")
_CHECK: Final = re.compile(r"\{([\w-]+)\}")
_HERE: Final = re.compile(r"\(here(?::([\w,-]+))?\)")
_KINDS: Final[Mapping[str, Operands]] = {kind: kind for kind in get_args(Operands)}


def why_not_reader(
    found: ReadingProgram,
    words: Sequence[Word],
    place: CommandPlace,
    variables: frozenset[str],
    checks: Mapping[str, Check],
) -> str | None:
    """Return the reason why a call of the program does more than read, or None if it only reads.

    Args:
        found: the program's entry in the table.
        words: the words behind its name.
        place: the directories around it.
        variables: those whose value may be shown.
        checks: the further checks, by name.
    """
    reading = read_options(found.grammar, words, globs=_reads_each(found))
    if isinstance(reading, str):
        return reading
    if found.most is not None and len(reading.operands) > found.most:
        return "it has more operands than reading takes"
    for name, value in reading.options:
        option = found.grammar.options.get(name)
        reason = _why_not_value(option.kind if option else "", name, value, place, variables)
        if reason is not None:
            return reason
    reason = _operands(found, reading, place, variables)
    if reason is None and found.check:
        reason = checks[found.check](reading)
    return reason


_VALUES: Final = {
    "n": re.compile(r"[+-]?[\d.]+[A-Za-z%]*", re.ASCII),
    "c": re.compile(r"[\d,+$-]+", re.ASCII),
    "w": re.compile(r"[\w:,+%.@-]+", re.ASCII),
    "e": re.compile(r"[A-Za-z][\w-]*(?://TRANSLIT|//IGNORE)?", re.ASCII),
}
"""The values of options by kind. A value of another kind would mean that the arity differs."""


def _why_not_value(
    kind: str, name: str, value: Word | None, place: CommandPlace, variables: frozenset[str]
) -> str | None:
    if value is None:
        return None
    if not value.variables <= variables:
        return "it shows a variable"
    if kind == "p":
        return why_not_read(value, place)
    if kind == "s" and names_a_secret([value]):
        return "it names what commonly holds secrets"
    pattern = _VALUES.get(kind)
    if pattern is not None and not pattern.fullmatch(value.text or ""):
        return f"the value of {name} is not understood"
    return None


def _reads_each(found: ReadingProgram) -> bool:
    """Return whether each operand is a file to read, so that their number does not matter.

    Behind a pattern, no check looks at the files.
    """
    return found.most is None and (
        found.operands == "pattern" or (found.operands in {"files", "listed"} and not found.check)
    )


def _operands(
    found: ReadingProgram, reading: ParsedOptions, place: CommandPlace, variables: frozenset[str]
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
        case "listed":
            reasons = (why_not_list(word, place) for word in operands or here(place))
            return next((one for one in reasons if one is not None), None)
        case "files" | "pattern":
            options = found.grammar.options
            given = any(name in options and options[name].is_pattern for name, _ in reading.options)
            skipped = 1 if found.operands == "pattern" and not given else 0
            if any(word.splits for word in operands[:skipped]):
                return "its pattern is not known"
            reason = shows_variables(operands[:skipped], variables)
            around = found.here is not None and (not found.here or reading.has(*found.here))
            files = operands[skipped:] or (here(place) if around else ())
            reasons = (why_not_read(word, place) for word in files)
            return reason or next((one for one in reasons if one is not None), None)
        case _:
            assert_never(found.operands)


MOVED: Final = "."
"""The mark among the strays of a place for a directory that a `cd` leads to, and is not known."""


def here(place: CommandPlace) -> tuple[Word, ...]:
    """Return the current directory as an operand: `cd ~ && rg x` reads what `rg x ~` reads."""
    counts = place.directory is not None or MOVED in place.strays
    return (Word("."),) if counts else ()


def shows_variables(words: Sequence[Word], variables: frozenset[str]) -> str | None:
    """Return why printing these words shows a variable's value, or None if it shows none."""
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


def why_not_assign(one: Assignment, *, alone: bool, variables: frozenset[str]) -> str | None:
    """Return why an assignment can change what programs do, or None if it cannot."""
    if alone and LOCAL_NAME.fullmatch(one.name) and one.value.variables <= variables:
        return None
    if not alone and one.value.text is not None:
        if _HARMLESS.fullmatch(one.name) and _is_plain(one.name, one.value.text):
            return None
        if one.name in _CATS and one.value.text in {"cat", ""}:
            return None
    return "a variable is set that may change what programs do"


def _is_plain(name: str, value: str) -> bool:
    """Return whether a value of a harmless variable names no file.

    The C library opens `LANGUAGE=../x` and `LC_ALL=/x` as files of translations: text that
    programs use as formats. `TZ=:/x` is a file too.
    """
    if name == "TZ":
        return not value.startswith(("/", ":")) and ".." not in value
    return "/" not in value or name == "IFS"


def is_of_no_file(one: Redirection) -> bool:
    """Return whether a redirection is about no file that lasts: `2>&1`, `>/dev/null`, `<&-`."""
    text = one.target.text or ""
    is_descriptor = one.operator in {">&", "<&"} and text.isascii() and text.isdigit()
    return is_descriptor or one.operator in {"<&-", ">&-"} or text == "/dev/null"


def why_not_redirect(
    one: Redirection, place: CommandPlace, variables: frozenset[str]
) -> str | None:
    """Return why a redirection does more than read, or None if it only reads."""
    target = one.target
    match one.operator:
        case "<<" | "<<<":
            return shows_variables([target], variables)
        case "<":
            return why_not_read(target, place)
        case _:
            return None if is_of_no_file(one) else "output is written to a file"


def directory_after(rest: Sequence[Word], place: CommandPlace) -> str | None:
    """Return the directory that a `cd` leads to; None if that is not known."""
    operands = [word for word in rest if word.text != "--"]
    if not rest:
        return place.home
    if len(operands) != 1 or (operands[0].text or "-").startswith("-"):
        return None
    return path_of(operands[0], place)
