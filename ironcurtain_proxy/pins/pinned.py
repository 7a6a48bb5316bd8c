"""The parts of a server that are pinned, as values.

A part is anything that a server says of itself before it is used: its instructions, a tool, a
prompt, a template, the words about a resource in its list, the HTML of a view. Which resources
there are is data, which changes as files do: a new one of a known scheme is no change.
"""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from collections.abc import Mapping
from hashlib import sha256
from itertools import islice
from typing import (
    Any,  # noqa: TID251  msgspec knows no recursive `Json`
    Final,
    TypeAlias,
)

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.pinning import Section

INSTRUCTIONS: Final = "instructions"
TITLE: Final = "title"
"""The name of the one part of its section."""

_VIEW: Final = "ui"
"""The scheme of what clients show as a part of themselves (MCP Apps). It is no data."""

MOST_KEPT: Final = 64 * 1024
"""Bytes of a part that are kept for comparison; of a larger part only the digest is kept."""

MOST_NOTED: Final = 1000
"""The most resources of one server whose words are kept."""

MOST_OFFERED: Final = 1000
"""The most offers of one section that are kept, because a server may invent names without end."""


class PinnedPart(Struct, frozen=True, forbid_unknown_fields=True):
    """One part of a server's description."""

    digest: str
    """SHA-256 of its JSON, the same for any order of keys."""
    value: Any
    """The part, or None if it is too large to be kept."""

    @staticmethod
    def of(value: Json) -> "PinnedPart":
        """Return the part with this value."""
        try:
            text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        except RecursionError:
            return PinnedPart("", None)  # what cannot be compared is never the same
        raw = text.encode()
        return PinnedPart(sha256(raw).hexdigest(), value if len(raw) <= MOST_KEPT else None)

    def is_same(self, other: "PinnedPart") -> bool:
        """Return whether two parts are equal."""
        return self.digest == other.digest != ""


Parts: TypeAlias = Mapping[str, PinnedPart]
"""The parts of a section by name."""


class ServerPins(Struct, frozen=True, kw_only=True):
    """The pinned parts of one server, and its offers in their place."""

    server: str
    launch: str
    """SHA-256 of the server's start, or of its address."""
    trusted: Mapping[Section, Parts] = field(default_factory=dict)
    """The trusted parts. A section that is missing has never been listed."""
    offered: Mapping[Section, Parts] = field(default_factory=dict)
    """Parts that are new or different, and wait for a person."""

    def with_first(self, section: Section, parts: Parts) -> "ServerPins":
        """Return the pins with parts trusted at first sight."""
        known = self.trusted.get(section, {})
        return replace(self, trusted={**self.trusted, section: {**parts, **known}})

    def with_offers(self, section: Section, parts: Parts) -> "ServerPins":
        """Return the pins after the server has listed these parts.

        An offer that it does not list now stays: another session may have it. Of too many, the
        first are kept; the others are held all the same, and offered when there is room.
        """
        known, waiting = self.trusted.get(section, {}), self.offered.get(section, {})
        offers = {
            name: part
            for name, part in {**waiting, **parts}.items()
            if name not in known or not known[name].is_same(part)
        }
        offers = dict(islice(offers.items(), MOST_OFFERED))
        others = {key: value for key, value in self.offered.items() if key != section}
        return replace(self, offered={**others, section: offers} if offers else others)

    def accepted(self, names: frozenset[tuple[Section, str]] | None = None) -> "ServerPins":
        """Return the pins with the named offers trusted, or with all offers."""
        trusted = {section: dict(parts) for section, parts in self.trusted.items()}
        left: dict[Section, dict[str, PinnedPart]] = {}
        for section, parts in self.offered.items():
            for name, part in parts.items():
                is_taken = names is None or (section, name) in names
                (trusted if is_taken else left).setdefault(section, {})[name] = part
        return replace(self, trusted=trusted, offered=left)


def new_data(section: Section, parts: Parts, trusted: Mapping[Section, Parts]) -> Parts:
    """Return the new parts that are no change: resources of a scheme that was there before.

    Args:
        section: the section that was listed.
        parts: all of it.
        trusted: what was trusted before.
    """
    known = trusted.get(section, {})
    if section != "resources" or not known:
        return {}
    schemes = {_scheme(name) for name in (*known, *trusted.get("templates", {}))} - {_VIEW}
    return {
        name: part for name, part in parts.items() if name not in known and _scheme(name) in schemes
    }


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].lower()
