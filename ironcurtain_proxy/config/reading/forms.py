"""Forms: one declaration for each file that people write.

Theory of operation. A form is a frozen struct: its fields are the keys of an object, with type,
bounds and default. From it come

- the fast reading (`fill`): msgspec converts a document that is right;
- all mistakes at once (`mistakes`): where msgspec refuses, the document is walked beside the type,
  and each mistake is reported at its place, with the nearest known word, and without the value;
- the JSON Schema for editors (`config.schemas`).

    class Limits(Form):
        open_files: Annotated[int, Meta(ge=64, le=1_048_576)] = 1024

    {"openFile": 1}     $.openFile: unknown key (did you mean "openFiles"?)

A key that begins with `_` is a comment. An optional key is `Maybe[…] = UNSET`: `null` is refused,
because a condition of `null` must not become no condition.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

from msgspec import Meta, Struct, UnsetType, ValidationError, convert, field

from ironcurtain_proxy.config.reading.document import DocumentNode
from ironcurtain_proxy.config.reading.problems import PathPart, Report
from ironcurtain_proxy.config.reading.reading import read_document
from ironcurtain_proxy.model.values import Json

SCHEMA_KEY: Final = "$schema"
T = TypeVar("T")
Maybe: TypeAlias = T | UnsetType
"""The value of a key that may be absent, which is not `null`."""


def given(said: Maybe[T]) -> T | None:
    """Return the value of a key, or None if it is absent. An empty value is one."""
    return None if isinstance(said, UnsetType) else said


class Form(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """An object with known keys."""

    def __repr__(self) -> str:
        # What people write may hold secrets.
        return f"{type(self).__name__}(…)"


class Document(Form, frozen=True, kw_only=True):
    """A whole file, which may name the JSON Schema that its editor checks it with."""

    schema: str = field(name=SCHEMA_KEY, default="")


class MisfitError(ValueError):
    """A form whose fields do not fit each other."""

    def __init__(self, form: "CheckedForm") -> None:
        super().__init__("refused")
        self.form = form


FormMistake: TypeAlias = tuple[tuple[PathPart, ...], str, str]
"""The place inside an object, the message, and the nearest known word or nothing."""


class CheckedForm(Form, frozen=True, kw_only=True):
    """A form with a rule about several of its fields, or one that no type expresses."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield each mistake, with its place inside this object."""
        yield from ()

    def __post_init__(self) -> None:
        for _ in self.mistakes():
            raise MisfitError(self)


class SharedForm(CheckedForm, frozen=True, kw_only=True):
    """A form of a section that other programs have, too: unknown keys are warnings."""


def says(pattern: str, words: str, least: int = 0) -> Meta:
    """Constrain a text by a pattern for all of it, with the message about one that differs.

    With `least` 1, the message about an empty text is one of its own.
    """
    # Python's `$` alone also stands before a last line break.
    whole = rf"^(?:{pattern})(?!\n)$"
    return Meta(min_length=least or None, pattern=whole, extra={"words": words})


NameText: TypeAlias = Annotated[str, says(r"[^\x00]*", "must not hold NUL", 1)]
"""A text that is not empty and holds no NUL: it becomes a path, a name or an argument."""

Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=3600)]
"""A span of time, up to an hour."""

VariableName: TypeAlias = Annotated[
    str, says(r"[^=\x00]+", "is not a name for an environment variable")
]


def read_form(path: Path, kind: type[T], report: Report) -> tuple[bytes, T, DocumentNode] | None:
    """Read a file: its bytes, the filled form, and the value with its places for later checks.

    Return None if the file cannot be read at all. After other mistakes, which are in the report,
    the form holds what was right.
    """
    read = read_document(path, report)
    if read is None:
        return None
    data, node = read
    return data, fill(node, kind), node


def fill(node: DocumentNode, kind: type[T], *, foreign: bool = False) -> T:
    """Fill a form with a value, and report each mistake at its place.

    Args:
        node: the value.
        kind: the form, or another type.
        foreign: whether unknown keys are warnings, because another program may know them.
    """
    form = _converted(node.value, kind)
    if form is not None:
        return form
    # Only where something is wrong, or a comment stands inside.
    from ironcurtain_proxy.config.reading.mistakes import fill_slowly  # noqa: PLC0415

    return fill_slowly(node, kind, foreign=foreign)


def _converted(value: Json, kind: type[T]) -> T | None:
    if isinstance(value, dict) and isinstance(kind, type):
        value = {key: inner for key, inner in value.items() if not key.startswith("_")}
    try:
        return convert(value, kind)
    except (ValidationError, RecursionError):
        return None


def keys_of_form(kind: type[Struct]) -> tuple[str, ...]:
    """Return the keys of a form as they are written."""
    return kind.__struct_encode_fields__
