"""A file of pins as bytes, and back. A file with any other content is refused."""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.pinning import SECTIONS, Section
from ironcurtain_proxy.pins.pinned import Parts, PinnedPart, ServerPins

_VERSION: Final = 1
_KEYS: Final = frozenset({"version", "server", "launch", "trusted", "offered"})


class PinsFormatError(ValueError):
    """A file that is damaged, or not of this format."""


def pins_bytes(pins: ServerPins) -> bytes:
    """The content of the file."""
    document = {
        "version": _VERSION,
        "server": pins.server,
        "launch": pins.launch,
        "trusted": _written(pins.trusted),
        "offered": _written(pins.offered),
    }
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
    server, launch = found.get("server"), found.get("launch")
    if found.keys() != _KEYS or not isinstance(server, str) or not isinstance(launch, str):
        raise PinsFormatError("is damaged")
    return ServerPins(
        server=server,
        launch=launch,
        trusted=_sections(found["trusted"]),
        offered=_sections(found["offered"]),
    )


def _written(sections: Mapping[Section, Parts]) -> Json:
    return {
        section: {
            name: {"digest": part.digest, "value": part.value} for name, part in parts.items()
        }
        for section, parts in sections.items()
    }


def _sections(found: object) -> Mapping[Section, Parts]:
    if not isinstance(found, dict) or not found.keys() <= set(SECTIONS):
        raise PinsFormatError("is damaged")
    return {section: _parts(found[section]) for section in SECTIONS if section in found}


def _parts(found: object) -> Parts:
    if not isinstance(found, dict):
        raise PinsFormatError("is damaged")
    return {name: _part(part) for name, part in found.items()}


def _part(found: object) -> PinnedPart:
    if not isinstance(found, dict) or found.keys() != {"digest", "value"}:
        raise PinsFormatError("is damaged")
    digest = found["digest"]
    if not isinstance(digest, str):
        raise PinsFormatError("is damaged")
    return PinnedPart(digest, found["value"])


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)
