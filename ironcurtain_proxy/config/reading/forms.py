"""Forms: one declaration for each file that people write.

Theory of operation. A form is a frozen struct: its fields are the keys of an object, with type,
bounds and default. From it come

- the fast reading (`fill`): msgspec converts a document that is right;
- all mistakes at once (`fill_slowly`): where msgspec refuses, the document is walked beside the
  type, and each mistake is reported at its place, with the nearest known word, without the value;
- the JSON Schema for editors (`config.schemas`).

    class Limits(Form):
        open_files: Annotated[int, Meta(ge=64, le=1_048_576)] = 1024

    {"openFile": 1}     $.openFile: unknown key (did you mean "openFiles"?)

A key that begins with `_` is a comment. An optional key is `Maybe[…] = UNSET`: `null` is refused,
because a condition of `null` must not become no condition.

Settings are declared at the fields of a struct: key, type and default in one place (`setting`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,  # noqa: TID251  values of all types
    Final,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from msgspec import Meta, Struct, UnsetType, ValidationError, convert, field, inspect

from ironcurtain_proxy.config.reading.document import DocumentNode, PathPart, Report
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


# --- mistakes


_MOST_WHOLE: Final = 1 << 62
_MOST_PARTS: Final = 48
"""The most parts of a place: a file of another person must not exhaust the stack."""


def fill_slowly(node: DocumentNode, kind: type[T], *, foreign: bool = False) -> T:
    """Fill a form as `forms.fill` does. After a mistake, the form holds what was right."""
    info = inspect.type_info(kind)
    if foreign and isinstance(info, inspect.StructType):
        return cast("T", _struct(node, info, foreign=True))
    return cast("T", _value(node, info))


def _value(node: DocumentNode, kind: inspect.Type) -> object:
    """Return the value of a type that stands at a place, or the nearest to it after a mistake."""
    if len(node.place) > _MOST_PARTS:
        node.error("is nested too deeply")
        node = node.mute()
    return _READERS[type(kind)](node, kind)


def _struct(node: DocumentNode, kind: inspect.StructType, *, foreign: bool = False) -> object:
    fields = {one.encode_name: one for one in kind.fields}
    members = node.object(fields, foreign=foreign or issubclass(kind.cls, SharedForm))
    values = {
        one.name: _value(members.required(key), one.type)
        for key, one in fields.items()
        if key in members or one.required
    }
    try:
        return kind.cls(**values)
    except MisfitError as refused:
        for place, message, suggestion in refused.form.mistakes():
            node.at(*place).error(message, suggestion)
        return refused.form


def _alternative(node: DocumentNode, kind: inspect.UnionType) -> object:
    """Return the value of the one type of a union that its kind of value belongs to."""
    meant = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
    if node.value is None and len(meant) < len(kind.types):
        return None
    for one in meant:
        if len(meant) == 1 or type(node.value) in _json_of(one)[0]:
            return _value(node, one)
    node.wrong_kind(" or ".join([_json_of(one)[1] for one in meant]))
    return _value(node.mute(), meant[0])


def _text(node: DocumentNode, kind: inspect.StrType, words: str = "") -> str:
    text = node.text()
    if kind.min_length and node.value == "":
        node.error("must not be empty")
    elif node.value == text and kind.pattern and re.search(kind.pattern, text) is None:
        node.error(words)
    return text


def _described(node: DocumentNode, kind: inspect.Metadata) -> object:
    if isinstance(kind.type, inspect.StrType):
        return _text(node, kind.type, str((kind.extra or {}).get("words", "")))
    return _value(node, kind.type)


def _by_name(node: DocumentNode, kind: inspect.DictType) -> dict[str, object]:
    members = node.members()
    for name, inner in members.items() if isinstance(kind.key_type, inspect.Metadata) else ():
        _value(inner.spelled(name), kind.key_type)
    return {name: _value(inner, kind.value_type) for name, inner in members.items()}


def _whole(node: DocumentNode, kind: inspect.IntType) -> int:
    return node.whole(kind.ge or 0, _MOST_WHOLE if kind.le is None else kind.le)


def _number(node: DocumentNode, kind: inspect.FloatType) -> float:
    high = _MOST_WHOLE if kind.le is None else kind.le
    if kind.ge is not None and kind.ge == node.value and not isinstance(node.value, bool):
        return float(kind.ge)
    return node.number(kind.gt if kind.gt is not None else kind.ge or 0.0, high)


def _listed(node: DocumentNode, kind: inspect.VarTupleType) -> tuple[object, ...]:
    return tuple([_value(item, kind.item_type) for item in node.items()])


_READERS: Final[Mapping[type[inspect.Type], Callable[[DocumentNode, Any], object]]] = {
    inspect.AnyType: lambda node, _: node.value,
    inspect.BoolType: lambda node, _: node.switch(),
    inspect.DictType: _by_name,
    inspect.FloatType: _number,
    inspect.FrozenSetType: lambda node, kind: frozenset(_listed(node, kind)),
    inspect.IntType: _whole,
    inspect.LiteralType: lambda node, kind: node.word(kind.values),
    inspect.Metadata: _described,
    inspect.StrType: _text,
    inspect.StructType: _struct,
    inspect.UnionType: _alternative,
    inspect.VarTupleType: _listed,
}


def _json_of(kind: inspect.Type) -> tuple[tuple[type, ...], str]:
    """Return the types of parsed JSON that a type is read from, and the words for them."""
    match kind:
        case inspect.Metadata(type=inner):
            return _json_of(inner)
        case inspect.BoolType():
            return (bool,), "true or false"
        case inspect.IntType() | inspect.FloatType():
            return (int, float), "a number"
        case inspect.StrType() | inspect.LiteralType():
            return (str,), "text"
        case inspect.VarTupleType() | inspect.FrozenSetType():
            return (list,), "a list"
        case _:
            return (dict,), "an object"


# --- declared


class KeyReader(Protocol):
    """Reads one key of a section, as `Layers.read` and `Members.read` do."""

    def __call__(self, key: str, read: Callable[[DocumentNode], T], default: T, /) -> T:
        """Return the value of the key, or the default if the key is absent."""


_PLACE: Final = "$."
"""What the encoded name of a field begins with that is read from a key; the key follows."""


def setting(key: str, default: T) -> T:
    """Declare a field of a frozen struct that is read from a key, as its type says."""
    return field(default=default, name=_PLACE + key)


class Declared(Struct, frozen=True):
    """A field that is read from a key."""

    name: str
    key: str
    kind: type
    """Its type without `None`, which stands for an absent key: `null` is none of its values."""
    default: Any


def declared(kind: type[Struct], read: KeyReader, section: str = "") -> dict[str, Any]:
    """Return the values of all declared fields of a class, by field.

    Args:
        kind: has the declarations.
        read: reads one key.
        section: what stands before each key, such as `escalation.`.
    """
    return {
        one.name: read(section + one.key, partial(fill, kind=one.kind), one.default)
        for one in declarations(kind)
    }


def declarations(kind: type[Struct]) -> Iterator[Declared]:
    """Yield the declared fields of a class."""
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    missing = len(names) - len(defaults)
    for place, written in enumerate(kind.__struct_encode_fields__):
        if written.startswith(_PLACE):
            said: Any = kind.__annotations__[names[place]]
            parts = [part for part in get_args(said) if part is not NoneType]
            is_union = get_origin(said) in (Union, UnionType)
            yield Declared(
                names[place],
                written.removeprefix(_PLACE),
                parts[0] if is_union else said,
                defaults[place - missing],
            )


def keys_of(kind: type[Struct], section: str = "") -> tuple[str, ...]:
    """Return the keys of all declared fields of a class."""
    return tuple([section + one.key for one in declarations(kind)])
