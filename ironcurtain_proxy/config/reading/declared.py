"""Settings declared at their fields: the key, the reader and the default in one place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Protocol, TypeVar  # noqa: TID251  the values of fields of all types

from ironcurtain_proxy.config.reading.document import Members, Spot

T = TypeVar("T")
W = TypeVar("W", bound=str)


class KeyReader(Protocol):
    """Reads one key of a section, as `Layers.read` and `Members.read` do."""

    def __call__(self, key: str, read: Callable[[Spot], T], default: T, /) -> T:
        """The value of the key, or the default if the key is absent."""


def setting(key: str, read: Callable[[Spot], T], default: T, *, is_secret: bool = False) -> T:
    """A field of a frozen dataclass, read from a key. A secret is left out of its `repr`."""
    return field(default=default, repr=not is_secret, metadata={"key": key, "read": read})


def declared(kind: type, read: KeyReader, section: str = "") -> dict[str, Any]:
    """The values of all declared fields of a class, by field.

    Args:
        kind: a dataclass.
        read: reads one key.
        section: what stands before each key, such as `escalation.`.
    """
    return {
        one.name: read(section + one.metadata["key"], one.metadata["read"], one.default)
        for one in fields(kind)
        if "key" in one.metadata
    }


def members_by_key(
    members: Members, readers: Mapping[str, Callable[[Spot], object]]
) -> dict[str, Any]:
    """The values of the present members. Absent members get the defaults of the class."""
    return {
        key: read(found) for key, read in readers.items() if (found := members.get(key)) is not None
    }


def object_of(
    kind: Callable[..., T], readers: Mapping[str, Callable[[Spot], object]]
) -> Callable[[Spot], T]:
    """A reader of an object whose keys are fields of a class, each with its reader."""
    return lambda spot: kind(**members_by_key(spot.object(readers), readers))


def keys_of(kind: type, section: str = "") -> tuple[str, ...]:
    """The keys of all declared fields of a class."""
    return tuple([section + one.metadata["key"] for one in fields(kind) if "key" in one.metadata])


def whole(low: int, high: int) -> Callable[[Spot], int]:
    """A reader of an integer from `low` to `high`."""
    return lambda spot: spot.whole(low, high)


def number(above: float, high: float) -> Callable[[Spot], float]:
    """A reader of a number above `above`, up to `high`."""
    return lambda spot: spot.number(above, high)


def one_of(words: Sequence[W]) -> Callable[[Spot], W]:
    """A reader of one word of a fixed vocabulary."""
    return lambda spot: spot.word(words)
