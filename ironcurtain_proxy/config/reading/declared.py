"""Settings declared at their fields: the key, the type and the default in one place."""

from collections.abc import Callable, Iterator
from dataclasses import Field, field, fields
from functools import partial
from types import NoneType, UnionType
from typing import (
    Any,  # noqa: TID251  the values of fields of all types
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from ironcurtain_proxy.config.reading.document import DocumentNode
from ironcurtain_proxy.config.reading.forms import fill

T = TypeVar("T")


class KeyReader(Protocol):
    """Reads one key of a section, as `Layers.read` and `Members.read` do."""

    def __call__(self, key: str, read: Callable[[DocumentNode], T], default: T, /) -> T:
        """Return the value of the key, or the default if the key is absent."""


def setting(key: str, default: T, *, is_secret: bool = False) -> T:
    """Declare a field of a frozen dataclass that is read from a key, as its type says.

    A secret is left out of its `repr`.
    """
    return field(default=default, repr=not is_secret, metadata={"key": key})


def declared(kind: type, read: KeyReader, section: str = "") -> dict[str, Any]:
    """Return the values of all declared fields of a class, by field.

    Args:
        kind: a dataclass.
        read: reads one key.
        section: what stands before each key, such as `escalation.`.
    """
    return {
        one.name: read(section + key, partial(fill, kind=said), one.default)
        for one, key, said in declarations(kind)
    }


def declarations(kind: type) -> "Iterator[tuple[Field[Any], str, type]]":
    """Yield the declared fields of a class, each with its key and its type without `None`.

    `None` stands for an absent key, so `null` is none of its values.
    """
    for one in fields(kind):
        if "key" in one.metadata:
            parts = [part for part in get_args(one.type) if part is not NoneType]
            is_union = get_origin(one.type) in (Union, UnionType)
            said = parts[0] if is_union else one.type
            yield one, one.metadata["key"], cast("type", said)


def keys_of(kind: type, section: str = "") -> tuple[str, ...]:
    """Return the keys of all declared fields of a class."""
    return tuple([section + key for _, key, _ in declarations(kind)])
