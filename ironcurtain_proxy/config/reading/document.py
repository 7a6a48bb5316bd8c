"""A parsed document, read strictly: every value knows its place.

A reader reports each mistake and continues with a value of the right type, so that one load
finds all mistakes; the report decides whether the document can be used. No validation library is
used: importing one takes longer than reading all files, and servers start only after that.

A problem has a place, a description, and the nearest known word. Values are never shown, except
words of a fixed vocabulary: a configuration holds secrets, and these lines are printed.

People copy a suggested word into a policy without further thought, so it only repairs spelling and
never names another action: `read_query` is not suggested for `write_query`, nor `list_tables` for
`create_table`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json, lazy, words

# --- problems

T = TypeVar("T")

Severity: TypeAlias = Literal["error", "warning"]
"""An error prevents the start; a warning is printed."""

PathPart: TypeAlias = str | int
"""A key or an index of a place in a document."""

_SHOWN_CHARACTERS = 80


class Problem(Struct, frozen=True):
    """One mistake in a file or variable."""

    source: str
    """The file, or the environment variable."""
    json_path: str
    """A path such as `$.rules[3].then`; empty: the source as a whole."""
    message: str
    suggestion: str = ""
    """The nearest known word, or empty if none is near."""
    severity: Severity = "error"

    def __str__(self) -> str:
        place = f"{self.source}: {self.json_path}" if self.json_path else self.source
        hint = f' (did you mean "{self.suggestion}"?)' if self.suggestion else ""
        return f"{place}: {self.message}{hint}"


class ProblemsError(ConfigurationError):
    """Operator's files that cannot be used. Its text is one line; `problems` has all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        errors = [problem for problem in self.problems if problem.severity == "error"]
        text = str(errors[0]) if errors else "the configuration cannot be used"
        if len(errors) > 1:
            text += f" (and {len(errors) - 1} more: `ironcurtain-proxy check` shows all)"
        super().__init__(text)


class Report:
    """Collects the problems of one load, so that all are shown at once."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, in the order in which they were found."""
        return tuple(self._problems)

    @property
    def has_errors(self) -> bool:
        """Whether any problem prevents the start."""
        return any(problem.severity == "error" for problem in self._problems)

    def error(
        self, source: object, path: Sequence[PathPart], message: str, suggestion: str = ""
    ) -> None:
        """Add a problem that prevents the start."""
        self.extend([Problem(str(source), json_path(path), message, suggestion)])

    def warning(
        self, source: object, path: Sequence[PathPart], message: str, suggestion: str = ""
    ) -> None:
        """Add a warning."""
        where = json_path(path)
        self.extend([Problem(str(source), where, message, suggestion, "warning")])

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add the problems of another report. What two checks find is one problem."""
        self._problems.extend([one for one in problems if one not in self._problems])

    def raise_errors(self) -> None:
        """Raise if any problem is an error.

        Raises:
            ProblemsError: with everything found, warnings too.
        """
        if self.has_errors:
            raise ProblemsError(self._problems)


def strictly(read: Callable[[Report], T]) -> T:
    """Return what is read.

    Raises:
        ProblemsError: it cannot be used; with everything found.
    """
    report = Report()
    found = read(report)
    report.raise_errors()
    return found


class MarkedReport(Report):
    """Adds to another report, with line and column of each marked place."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report
        self._marks: dict[tuple[PathPart, ...], str] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems of the report that this one adds to."""
        return self._report.problems

    @property
    def has_errors(self) -> bool:
        """Whether any of them prevents the start."""
        return self._report.has_errors

    def mark(self, path: Sequence[PathPart], line: int, column: int) -> None:
        """Note where a place of the document stands."""
        self._marks[tuple(path)] = f"line {line}, column {column}: "

    def marked(self, path: Sequence[PathPart]) -> str:
        """Line and column of a place, or of the nearest place around it; empty: not known."""
        for length in range(len(path), -1, -1):
            if (found := self._marks.get(tuple(path[:length]))) is not None:
                return found
        return ""

    def error(
        self, source: object, path: Sequence[PathPart], message: str, suggestion: str = ""
    ) -> None:
        """Add a problem that prevents the start."""
        self._report.error(source, path, self.marked(path) + message, suggestion)

    def warning(
        self, source: object, path: Sequence[PathPart], message: str, suggestion: str = ""
    ) -> None:
        """Add a warning."""
        self._report.warning(source, path, self.marked(path) + message, suggestion)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add the problems of another report."""
        self._report.extend(problems)


def json_path(parts: Sequence[PathPart]) -> str:
    """Write a place as JSONPath: `("rules", 0, "if")` is `$.rules[0].if`, `()` is empty."""
    if not parts:
        return ""
    steps = [f"[{part}]" if isinstance(part, int) else _key_step(part) for part in parts]
    return "$" + "".join(steps)


def shown(word: str) -> str:
    """Return a word from a file, quoted, cut, and without control characters.

    It goes to a terminal.
    """
    cut = word if len(word) <= _SHOWN_CHARACTERS else word[:_SHOWN_CHARACTERS] + "..."
    return '"' + "".join([c if c.isprintable() else "?" for c in cut]) + '"'


def _key_step(key: str) -> str:
    return f".{key}" if key.replace("-", "_").isidentifier() else f"[{shown(key)}]"


# --- documents

DocumentPlace: TypeAlias = tuple[PathPart, ...]
"""A place in a document, such as `("rules", 3, "if")`."""


class RulePlace(Struct, frozen=True):
    """The place of a rule."""

    source: str
    """The file."""
    path: DocumentPlace
    text: str = ""
    """Line and column, for a file in which several rules may share one place."""


W = TypeVar("W", bound=str)
D = TypeVar("D")

_KINDS: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


class DocumentNode:
    """A value of a document that an operator wrote, and its place there, for messages."""

    __slots__ = ("_report", "place", "source", "value")

    def __init__(
        self, value: Json, source: str, report: Report | None, place: DocumentPlace = ()
    ) -> None:
        self.value = value
        self.source = source
        """The file or variable."""
        self.place = place
        self._report = report

    def error(self, message: str, suggestion: str = "") -> None:
        """Report a mistake that prevents the start."""
        if self._report is not None:
            self._report.error(self.source, self.place, message, suggestion)

    def warning(self, message: str, suggestion: str = "") -> None:
        """Report a warning for the operator."""
        if self._report is not None:
            self._report.warning(self.source, self.place, message, suggestion)

    def inner(self, part: PathPart, value: Json) -> "DocumentNode":
        """Return a value inside this one."""
        return DocumentNode(value, self.source, self._report, (*self.place, part))

    def text(self) -> str:
        """Return a text, possibly empty."""
        if isinstance(self.value, str):
            return self.value
        self.wrong_kind("text")
        return ""

    def name(self) -> str:
        """Return a non-empty text without NUL; it becomes a path, a name or an argument."""
        text = self.text()
        if self.value == "":
            self.error("must not be empty")
        elif "\0" in text:
            self.error("must not hold NUL")
        return text

    def word(self, vocabulary: Sequence[W]) -> W:
        """Return a word of a fixed vocabulary."""
        if isinstance(self.value, str):
            for word in vocabulary:
                if word == self.value:
                    return word
            one_of = ", ".join(vocabulary)
            self.error(
                f"{shown(self.value)} is not one of {one_of}", nearest(self.value, vocabulary)
            )
        else:
            self.wrong_kind(f"one of {', '.join(vocabulary)}")
        return vocabulary[0]

    def switch(self) -> bool:
        """Return the value true or false."""
        if isinstance(self.value, bool):
            return self.value
        self.wrong_kind("true or false")
        return False

    def whole(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            if not low <= self.value <= high:
                self.error(f"must be from {low} to {high}")
            return self.value
        self.wrong_kind("a whole number")
        return low

    def number(self, above: float, high: float) -> float:
        """Return a number above `above`, up to `high`."""
        if isinstance(self.value, int | float) and not isinstance(self.value, bool):
            if not above < self.value <= high:
                self.error(f"must be greater than {above:g}, and at most {high:g}")
            return float(self.value)
        self.wrong_kind("a number")
        return high

    def items(self) -> list["DocumentNode"]:
        """Return the items of a list."""
        if isinstance(self.value, list):
            return [self.inner(index, item) for index, item in enumerate(self.value)]
        self.wrong_kind("a list")
        return []

    def texts(self) -> tuple[str, ...]:
        """Return a list of texts."""
        return self.each(DocumentNode.text)

    def each(self, read: "Callable[[DocumentNode], T]") -> tuple[T, ...]:
        """Return a list with every item read."""
        return tuple([read(item) for item in self.items()])

    def members(self) -> dict[str, "DocumentNode"]:
        """Return the members of an object whose keys are names of the operator's choice."""
        if isinstance(self.value, dict):
            return {key: self.inner(key, value) for key, value in self.value.items()}
        self.wrong_kind("an object")
        return {}

    def object(self, keys: Iterable[str], *, foreign: bool = False) -> "Members":
        """Return an object with known keys. In a `foreign` one, unknown keys are warnings."""
        known = tuple(keys)
        found: dict[str, DocumentNode] = {}
        for key, node in self.members().items():
            if key in known:
                found[key] = node
            elif key.startswith("_"):
                continue  # a comment
            elif foreign:
                node.warning("unknown key, ignored", nearest(key, known))
            else:
                node.error("unknown key", nearest(key, known))
        return Members(self, found)

    def at(self, *parts: PathPart) -> "DocumentNode":
        """Return the place that these parts lead to, whether or not a value stands there."""
        value = self.value
        for part in parts:
            if isinstance(value, dict):
                value = value.get(str(part))
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                value = None
        return DocumentNode(value, self.source, self._report, (*self.place, *parts))

    def spelled(self, name: str) -> "DocumentNode":
        """Return the name of this value as a value at the same place."""
        return DocumentNode(name, self.source, self._report, self.place)

    def mute(self) -> "DocumentNode":
        """Return a value that does not exist; mistakes in it are not reported."""
        return DocumentNode(None, self.source, None)

    def wrong_kind(self, wanted: str) -> None:
        """Report a value of another kind than these words say."""
        kind = _KINDS.get(type(self.value), "something else")
        self.error(f"must be {wanted}, not {kind}")


class Members:
    """The known members of an object."""

    __slots__ = ("_found", "node")

    def __init__(self, node: DocumentNode, found: Mapping[str, DocumentNode]) -> None:
        self.node = node
        self._found = found

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def get(self, key: str) -> DocumentNode | None:
        """Return a member that may be absent or null."""
        return self._found.get(key)

    def required(self, key: str) -> DocumentNode:
        """Return a member that must exist."""
        found = self._found.get(key)
        if found is not None:
            return found
        # A missing object was reported already.
        if isinstance(self.node.value, dict):
            self.node.inner(key, None).error("is missing")
        return self.node.mute()

    def read(self, key: str, read: Callable[[DocumentNode], T], default: D) -> T | D:
        """Return the value of an optional member, or the default."""
        found = self._found.get(key)
        return default if found is None else read(found)


# --- the nearest known word

_CUTOFF: Final = 0.6
_MISSPELT: Final = 0.7
"""The similarity of a verb and its misspelling."""
_CHOICES: Final = 20
_TOKEN: Final = lazy(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
_OPPOSITES: Final = ("un", "de", "dis", "re", "in")
"""Prefixes that turn a verb into its opposite."""


@cache
def _all_verbs() -> frozenset[str]:
    return words(Path(__file__).with_name("verbs.txt").read_text("utf-8"))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most likely meant, or empty if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415  only a mistake needs it

    by_folded = {candidate.casefold(): candidate for candidate in known}
    matches = get_close_matches(word.casefold(), by_folded, n=_CHOICES, cutoff=_CUTOFF)
    found = [by_folded[match] for match in matches if _says_the_same(word, by_folded[match])]
    return found[0] if found else ""


def _says_the_same(word: str, candidate: str) -> bool:
    """Return whether one word is a misspelling of the other."""
    mine, others = _tokens(word), _tokens(candidate)
    if len(mine) == len(others):
        return all(map(_is_misspelt, mine, others))
    # Words were joined, omitted or added: the verb must be in both.
    joined = "".join(mine)
    if joined == "".join(others):
        return True
    wanted, given = _verbs(others), _verbs(mine)
    return given <= wanted and all(
        verb in given or joined.startswith(verb) or any(_is_misspelt(t, verb) for t in mine)
        for verb in wanted
    )


def _is_misspelt(token: str, other: str) -> bool:
    """Return whether two parts of names differ in spelling only, verbs above all."""
    if token == other:
        return True
    if _is_opposite(token, other) or _is_opposite(other, token):
        return False
    verbs = _verb_of(token), _verb_of(other)
    if verbs[0] and verbs[0] != verbs[1]:
        return False
    from difflib import SequenceMatcher  # noqa: PLC0415  see `nearest`

    cutoff = _MISSPELT if verbs[1] else _CUTOFF
    return SequenceMatcher(None, token, other).ratio() >= cutoff


def _is_opposite(longer: str, shorter: str) -> bool:
    return any(longer == beginning + shorter for beginning in _OPPOSITES)


def _verb_of(token: str) -> str:
    """Return the verb at the beginning of a part of a name."""
    if token in _all_verbs():
        return token
    beginnings = [token[:length] for length in range(len(token) - 1, 2, -1)]
    return next((beginning for beginning in beginnings if beginning in _all_verbs()), "")


def _verbs(tokens: list[str]) -> frozenset[str]:
    return frozenset([token for token in tokens if token in _all_verbs()])


def _tokens(name: str) -> list[str]:
    return [token.casefold() for token in _TOKEN.findall(name)] or [name.casefold()]
