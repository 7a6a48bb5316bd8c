"""The slow reading of a form, which reports every mistake at its place.

Imported only where msgspec refused a document, or could not tell a comment from a key.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast  # noqa: TID251  values of all types

from msgspec import inspect

from ironcurtain_proxy.config.reading.document import DocumentNode
from ironcurtain_proxy.config.reading.forms import MisfitError, SharedForm

_MOST_WHOLE: Final = 1 << 62
_MOST_PARTS: Final = 48
"""The most parts of a place: a file of another person must not exhaust the stack."""

T = TypeVar("T")


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
