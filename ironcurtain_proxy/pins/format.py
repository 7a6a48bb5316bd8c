"""A file of pins as bytes, and back. A file with any other content is refused."""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, ValidationError, convert, to_builtins

from ironcurtain_proxy.model.pinning import SECTIONS, Section
from ironcurtain_proxy.pins.pinned import Parts, PinnedPart, ServerPins

_VERSION: Final = 1


class _PinsFile(Struct, forbid_unknown_fields=True):
    """The form of the file. Every member is there: what is missing was not trusted."""

    version: int
    server: str
    launch: str
    trusted: dict[Section, dict[str, PinnedPart]]
    offered: dict[Section, dict[str, PinnedPart]]


class PinsFormatError(ValueError):
    """A file that is damaged, or not of this format."""


def pins_bytes(pins: ServerPins) -> bytes:
    """The content of the file."""
    document = {"version": _VERSION, **to_builtins(pins)}
    return (json.dumps(document, indent=1, ensure_ascii=True) + "\n").encode()


def read_pins(raw: bytes) -> ServerPins:
    """The pins in a file.

    Raises:
        PinsFormatError: the file cannot be used.
    """
    try:
        found = json.loads(raw, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise PinsFormatError("is damaged") from None
    if not isinstance(found, dict) or not isinstance(found.get("version"), int):
        raise PinsFormatError("is no file of pins")
    if found["version"] != _VERSION:
        raise PinsFormatError("was written by another version")
    try:
        read = convert(found, _PinsFile)
    except ValidationError:
        raise PinsFormatError("is damaged") from None
    trusted, offered = _in_order(read.trusted), _in_order(read.offered)
    return ServerPins(server=read.server, launch=read.launch, trusted=trusted, offered=offered)


def _in_order(sections: Mapping[Section, Parts]) -> Mapping[Section, Parts]:
    return {section: sections[section] for section in SECTIONS if section in sections}


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)
