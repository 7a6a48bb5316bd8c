"""What stands in a command's own text: values of its variables, and its here-documents.

    owner=me; gh api repos/$owner/app/pulls     for n in 1 2; do gh pr view $n; done

A variable is replaced only where its value is certain: it is defined once in the whole text, by
known words, at a place that runs before every use of it, and nothing in the text could define it
otherwise. A use in a loop stands for a command with each of the values. All other variables stay
unknown.

In `for f in src/*.py` the variable stands for names of files. `"$f"` as a whole word counts as the
pattern itself: what may be done with all these files may be done with each. Without quotes a name
with spaces would become several words, and a name that begins with a dash an option.

Here-documents are taken out before the grammar reads a text. The grammar (tree-sitter-bash 0.25)
drops a word such as `-` before a redirection, and takes what follows the delimiter of a
here-document for something else. Both are what agents write all day:

    git commit -F - <<'EOF' && git push        git commit -F - </here-document-0 && git push
    a message                             →
    EOF

To a shell, `<<'EOF'` stands where any redirection of the input may stand, and the lines of the
document begin behind the end of its line. So a document becomes a redirection from a file that no
text names, and is given back once the rest was read. A `-` before `2>&1` becomes `'-'`.

This is right only if the `<<` is an operator and the line ends where this module thinks. So the
text is gone through from its beginning, and is left alone where something stands in which quotes
or ends of lines could mean something else: a substitution that is not plain, arithmetic, `$'…'`.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.request import ParsedCommand, Redirection, SimpleCommand, Word
from ironcurtain_proxy.model.values import words

# --- here-documents

_STEP: Final = re.compile(
    r"""
      (?P<start> <<(?P<strip>-?)[ \t]*
                 (?P<delimiter> \w+ | '\w+' | "\w+" | \\\w+ ) (?=[\s|&;<>)]) )
    | (?P<end> \n )
    | (?<![^\s;&|()<>]) \#[^\n]*
    | [^\\'"`$<\n(\#]+ | \#
    | '[^']*'
    | " (?: [^\\"`$] | \\[^\n] | \$(?=[ "|)/.,:;%}]) | \$\w+ | \$\{\w+\}
          | \$\([\w ./=,:@%+-]*\) )*+ "
    | \$\w+ | \$\{\w+\} | \$[?!$@*] | \$\([\w ./=,:@%+-]*\)
    | \\\n | \\[^\n](?!\#)
    | <<<(?!<) | <(?![<(]) | (?<![<>])\((?!\()
    """,
    re.VERBOSE | re.ASCII,
)
_LIVE: Final = re.compile(r"[`\\]|\$[^A-Za-z_\s]")
"""Text that a document whose delimiter is not quoted may not contain."""
_NAMED: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_DASH: Final = re.compile(r"(?<=[ \t])-(?=[ \t]+[0-9]*[<>&])")
_PLACE: Final = "/here-document-"
_LONGEST: Final = 64 << 10


class Lifted(Struct, frozen=True):
    """A text without its here-documents."""

    text: str
    documents: tuple[Word, ...]

    def given_back(self, commands: Iterable[SimpleCommand]) -> tuple[SimpleCommand, ...] | None:
        """Return the commands of the text with their documents, or None if one is not found."""
        found: list[SimpleCommand] = []
        left = {f"{_PLACE}{number}": one for number, one in enumerate(self.documents)}
        for command in commands:
            redirections = tuple(
                [
                    Redirection("<<", left.pop(one.target.text))
                    if one.operator == "<" and one.target.text in left
                    else one
                    for one in command.redirections
                ]
            )
            found.append(replace(command, redirections=redirections))
        return None if left else tuple(found)


def lifted(text: str) -> Lifted | None:
    """Return a text without its here-documents, or None if it has none or could be misread."""
    dashes = {found.start() for found in _DASH.finditer(text)}
    if not ("<<" in text or dashes) or len(text) > _LONGEST or _PLACE in text or "\0" in text:
        return None
    parts: list[str] = []
    documents: list[Word] = []
    waiting: list[re.Match[str]] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return None
        if waiting and "\n" in step[0] and not step["end"]:
            # A line that goes on.
            return None
        if step["start"]:
            parts.append(f"<{_PLACE}{len(documents) + len(waiting)}")
            waiting.append(step)
        else:
            parts.append(_with_dashes(step, dashes))
        at = step.end()
        while step["end"] and waiting:
            document = _document(text, at, waiting.pop(0))
            if document is None:
                return None
            word, at = document
            documents.append(word)
    return None if waiting else Lifted("".join(parts), tuple(documents))


def _with_dashes(step: "re.Match[str]", dashes: AbstractSet[int]) -> str:
    """Return a part of the text with quotes around each `-`, unless it is quoted or a comment."""
    if step[0][0] in "'\"$\\#":
        return step[0]
    signs = enumerate(step[0], step.start())
    return "".join(["'-'" if at in dashes else sign for at, sign in signs])


def _document(text: str, begin: int, start: "re.Match[str]") -> tuple[Word, int] | None:
    """Return a document and the place behind its delimiter, or None if it is not literal."""
    delimiter = start["delimiter"].strip("'\"\\")
    at = begin
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        if (line.lstrip("\t") if start["strip"] else line) == delimiter:
            body = text[begin:at]
            if start["delimiter"] != delimiter:
                return Word(body), end + 1
            named = frozenset(_NAMED.findall(body))
            return None if _LIVE.search(body) else (Word(body, variables=named), end + 1)
        at = end + 1
    return None


# --- signs of files elsewhere

_HOME: Final = "~/.x"
_PLACES: Final = re.compile(
    r"(?P<home>\b(?:OLDPWD|PWD|HOME|dirname)\b)"
    r"|(?<![\w.~/*])(?:~(?![\s\d~])|(?:[\w.-]*[\w.])?(?=/)|\.\.(?![\w.]))[\w.+@%*?\[{/-]*"
)
_ESCAPED: Final = re.compile(r"\$'[^']*\\[0-7xuU]")
"""A text in which a path may be written as numbers."""


def loose_paths(text: str) -> tuple[str, ...]:
    """Return the patterns of what may be paths elsewhere in a text that is not understood."""
    named = _PLACES.finditer(re.sub(r"['\"\\]", "", text))
    found = [_HOME if one["home"] else re.sub(r"[*?\[{]", "*", one[0]) for one in named]
    return tuple(dict.fromkeys([*found, *([_HOME] if _ESCAPED.search(text) else [])]))


_NAMES: Final = re.compile(r"[\w.+-]+")
_MOST_READ: Final = 65536


def unread(text: str, reason: str) -> ParsedCommand:
    """Return a text that is not understood, with its possible names of programs and files."""
    names = tuple(dict.fromkeys(_NAMES.findall(text[:_MOST_READ])))
    return ParsedCommand(unreadable=reason, loose_words=names, loose_paths=loose_paths(text))


# --- constants

_PLAIN: Final = re.compile(r"~|[\w./:@%+,=-]+|~/[\w./:@%+,=-]*")
"""A value that stays one word, and matches no files, without quotes around it."""
_REDEFINES: Final = words(
    "eval source . mapfile readarray let getopts trap alias unset typeset local declare readonly "
    "builtin coproc enable set shopt exec shift select function printf wait"
)
"""Programs that may give any variable another value, in ways that are not read here."""
_SPECIAL: Final = re.compile(
    r"(?:BASH|FUNC|COMP|PIPE|DIR|HIST|EPOCH).*|IFS|PWD|OLDPWD|S?RANDOM|SECONDS|LINENO|REPLY|OPT.*"
    r"|E?UID|PPID|SHLVL|COLUMNS|LINES|GROUPS|\w+TYPE|_|path|argv|status"
)
"""Variables that the shell sets itself."""
_MOST: Final = 32
"""Commands that one command with variables may stand for."""


class Located(Struct, frozen=True):
    """A command with its place in the text."""

    start: int
    command: SimpleCommand
    is_first: bool
    """Whether no part before it decides if it runs."""
    values: tuple[Word, ...] = ()
    """The words of the variable of a loop, for the head of the loop."""
    end: int = 0
    """The end of the loop, for its head."""
    until: int = 0
    """The end of the text that only runs after it, or 0 if it sets no variable."""


class _Definition(Struct, frozen=True):
    values: tuple[str | Word, ...]
    """Texts, or patterns of the names of files."""
    start: int
    end: int
    """The place from which on uses count only if the definition always runs."""
    is_first: bool

    def reaches(self, use: int) -> bool:
        return self.start < use and (self.is_first or use < self.end)


def with_constants(found: Sequence[Located]) -> Iterator[SimpleCommand]:
    """Yield the commands in the order of the text, their known variables replaced."""
    definitions = _definitions(found)
    setting = [one for one in found if one.until]
    for one in found:
        known = {name: d.values for name, d in definitions.items() if d.reaches(one.start)}
        command = _behind(one, setting) if setting else one.command
        yield from _variants(command, known)


def _behind(one: Located, setting: Sequence[Located]) -> SimpleCommand:
    """Return a command with the variables that others have set in any case when it runs."""
    before = [
        name
        for other in setting
        if other.start < one.start < other.until
        for name in _defined(other.command)
    ]
    return replace(one.command, set_before=frozenset(before)) if before else one.command


def defines(command: SimpleCommand) -> bool:
    """Return whether a command gives variables of the shell a value."""
    if not command.words:
        return bool(command.assignments)
    return command.words[0].text == "read"


def _definitions(found: Sequence[Located]) -> Mapping[str, _Definition]:
    commands = [one.command for one in found]
    if any(map(_may_redefine, commands)):
        return {}
    counted = Counter(name for command in commands for name in _defined(command))
    home = _Definition(("~",), -1, 0, is_first=True)
    known: dict[str, _Definition] = {} if counted["HOME"] else {"HOME": home}
    for one in found:
        if one.command.words or len(one.command.assignments) != 1:
            continue
        (assignment,) = one.command.assignments
        values = one.values or (assignment.value,)
        texts = [
            text
            for value in values
            for text in _values(value, one.start, known, is_loop=bool(one.values))
        ]
        is_certain = (
            counted[assignment.name] == 1
            and None not in texts
            and not _SPECIAL.fullmatch(assignment.name)
        )
        if is_certain and (one.values or one.is_first) and len(texts) <= _MOST:
            plain = tuple([text for text in texts if text is not None])
            known[assignment.name] = _Definition(plain, one.start, one.end, one.is_first)
    return {} if counted["IFS"] else known


def _values(
    value: Word, start: int, known: Mapping[str, _Definition], *, is_loop: bool
) -> tuple[str | Word | None, ...]:
    """Return the values that a defining word may have, or None if one is not known."""
    # An assignment keeps the stars; only a loop goes through the files.
    is_names = is_loop and value.is_glob and value.prefix[:1] not in {"", "-"}
    is_names = is_names and not _is_odd(value.prefix)
    return (value,) if is_names else _texts(value, start, known)


def _texts(value: Word, start: int, known: Mapping[str, _Definition]) -> tuple[str | None, ...]:
    """Return the texts that a defining word may have, or None if it is not known."""
    if value.text is not None:
        return (None,) if _is_odd(value.text) else (value.text,)
    reaching = {name: d.values for name, d in known.items() if d.reaches(start)}
    return tuple([word.text for word in _filled(value, reaching)])


def _is_odd(text: str) -> bool:
    """Return whether a text has a tilde which is not the home at the beginning of a path.

    A tilde means a directory or itself, by quotes that are gone. As a home more is asked about.
    """
    return text != "~" and "~" in text.removeprefix("~/")


def _may_redefine(command: SimpleCommand) -> bool:
    words = [word.text for word in command.words]
    if not words:
        return False
    name = (words[0] or "").rpartition("/")[2]
    if name == "command":
        return words[1:2] not in (["-v"], ["-V"])
    if name == "printf":
        return words[1:2] == ["-v"] or words[1:2] == [None]
    if name in {"read", "export"}:
        return any(not re.match(r"-\w+\Z|[A-Za-z_]", word.prefix) for word in command.words[1:])
    if name == "set":
        return any(not re.fullmatch(r"-[eux]+|pipefail|-e?u?x?o", word or "") for word in words[1:])
    # A program that is not known could be any of these.
    return words[0] is None or name in _REDEFINES


def _defined(command: SimpleCommand) -> Iterator[str]:
    """Give the names that a command gives a value, each as often as it does so."""
    yield from (assignment.name for assignment in command.assignments)
    if command.words and command.words[0].text in {"read", "export"}:
        yield from (word.prefix.partition("=")[0] for word in command.words[1:])


def _variants(
    command: SimpleCommand, known: Mapping[str, tuple[str | Word, ...]]
) -> Iterator[SimpleCommand]:
    words = [_filled(word, known) for word in command.words]
    targets = [_filled(one.target, known) for one in command.redirections]
    counts = [len(one) for one in (*words, *targets)]
    total = 1
    for count in counts:
        total *= count
    if total > _MOST:
        yield command
        return
    for chosen in itertools.product(*words, *targets):
        redirections = tuple(
            [
                Redirection(one.operator, target)
                for one, target in zip(command.redirections, chosen[len(words) :], strict=True)
            ]
        )
        yield replace(command, words=chosen[: len(words)], redirections=redirections)


def _filled(word: Word, known: Mapping[str, tuple[str | Word, ...]]) -> tuple[Word, ...]:
    """Return the words that a word stands for; itself where a part of it stays unknown."""
    if word.text is not None or not word.template:
        return (word,)
    pieces = [piece for piece in word.template if piece.is_variable or piece.text]
    if len(pieces) == 1 and pieces[0].is_variable and not pieces[0].splits:
        whole = known.get(pieces[0].text, (word,))
        return tuple([Word(one) if isinstance(one, str) else one for one in whole])
    choices: list[tuple[str, ...]] = []
    for piece in pieces:
        values = known.get(piece.text) if piece.is_variable else (piece.text,)
        texts = [one for one in values or () if isinstance(one, str)]
        if values is None or len(texts) < len(values):
            return (word,)
        if piece.splits and not all(map(_PLAIN.fullmatch, texts)):
            return (word,)
        choices.append(tuple(texts))
    found = ["".join(parts) for parts in itertools.islice(itertools.product(*choices), _MOST + 1)]
    is_unclear = len(found) > _MOST or any(map(_is_odd, found))
    return (word,) if is_unclear else tuple(map(Word, dict.fromkeys(found)))
