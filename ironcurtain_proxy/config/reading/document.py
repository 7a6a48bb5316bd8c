"""A parsed document, read strictly: every value knows its place.

A reader reports each mistake and continues with a value of the right type, so that one load
finds all mistakes; the report decides whether the document can be used. No validation library is
used: importing one takes longer than reading all files, and servers start only after that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from ironcurtain_proxy.config.reading.problems import PathPart, Report, nearest, shown
from ironcurtain_proxy.model.values import Json

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
T = TypeVar("T")
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
