"""What is pinned of a server, what changed in it, and signs of an attack.

A part is anything that a server says of itself before it is used: its instructions, a tool, a
prompt, a template, the words about a resource in its list, the HTML of a view. Which resources
there are is data, which changes as files do: a new one of a known scheme is no change. A server is
compared with its pins: parts are changed, new or renamed, said in words.

Rules with ids find signs of an attack in a description. A finding is a reason to look and never a
decision: a server that means harm has other words, and one that means well may have these. Patterns
take linear time on any text.
"""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import (
    Any,  # noqa: TID251  msgspec knows no recursive `Json`
    Final,
    Literal,
    TypeAlias,
)

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.credentials import named_in
from ironcurtain_proxy.model.escalation import is_hidden, visible
from ironcurtain_proxy.model.server import SECTIONS, Section
from ironcurtain_proxy.model.values import Json, lazy, object_of

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


# --- difference


PinChangeKind: TypeAlias = Literal["changed", "new", "renamed"]

_ALIKE: Final = 0.9
"""The least likeness for which a new tool is taken for a renamed one."""
_MOST_COMPARED: Final = 20_000
"""Characters of a part that are compared for likeness."""


class PinChange(Struct, frozen=True, kw_only=True):
    """One part that waits for a person."""

    section: Section
    name: str
    kind: PinChangeKind
    was: str = ""
    """The trusted part that a renamed one is almost equal to."""
    before: PinnedPart | None = None
    after: PinnedPart

    def lines(self) -> Iterator[str]:
        """Yield the difference line by line, with every character visible."""
        import difflib  # noqa: PLC0415  nothing has changed in most sessions

        before = [] if self.before is None else _lines(self.before)
        after = _lines(self.after)
        compared = difflib.unified_diff(before, after, lineterm="", n=2)
        yield from [line for line in compared if not line.startswith(("---", "+++"))]


def changes(pins: ServerPins) -> tuple[PinChange, ...]:
    """Return all changes that wait for a person, in the order of sections and names."""
    return tuple(
        [
            _change(section, name, part, pins.trusted.get(section, {}))
            for section in SECTIONS
            for name, part in sorted(pins.offered.get(section, {}).items())
        ]
    )


def _change(
    section: Section, name: str, part: PinnedPart, trusted: Mapping[str, PinnedPart]
) -> PinChange:
    if name in trusted:
        return PinChange(
            section=section, name=name, kind="changed", before=trusted[name], after=part
        )
    second_instance = next((other for other, known in trusted.items() if _alike(known, part)), "")
    return PinChange(
        section=section,
        name=name,
        kind="renamed" if second_instance else "new",
        was=second_instance,
        before=trusted.get(second_instance),
        after=part,
    )


def _alike(one: PinnedPart, other: PinnedPart) -> bool:
    """Return whether two parts are almost equal except for their names, False if large."""
    if one.value is None or other.value is None:
        return False
    left, right = _without_name(one.value), _without_name(other.value)
    if not left or len(left) + len(right) > _MOST_COMPARED:
        return False
    import difflib  # noqa: PLC0415  as above

    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    return matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE


def _without_name(value: Json) -> str:
    rest = {key: one for key, one in object_of(value).items() if key not in {"name", "title"}}
    return json.dumps(rest, sort_keys=True) if rest else ""


def _lines(part: PinnedPart) -> Sequence[str]:
    if part.value is None:
        return [f"(too large to be kept: SHA-256 {part.digest})"]
    if isinstance(part.value, str):
        return [visible(line) for line in part.value.splitlines()]
    text = json.dumps(part.value, indent=2, sort_keys=True, ensure_ascii=False)
    # A description of many lines is compared by them: one changed line is not hidden by the others.
    return [visible(line) for line in text.replace("\\n", "\\n\n").splitlines()]


# --- scan


RuleId: TypeAlias = Literal[
    "hidden-characters", "instructs-the-model", "speaks-of-secrets", "names-another-server"
]

_MOST: Final = 64 * 1024
"""Characters of a text that are searched."""
_SHOWN: Final = 60

_INSTRUCTS: Final = lazy(
    r"ignore (?:all |any )?(?:the )?(?:previous|prior|above|other) (?:instructions|tools|rules)"
    r"|do not (?:tell|mention|inform|show|reveal|alert)(?: this)?(?: to)? the user"
    r"|without (?:telling|informing|asking|notifying) the user"
    r"|(?:before|after|when) (?:using|calling|invoking) any (?:other )?tool"
    r"|you must (?:always |first )?(?:call|use|invoke|read|send|pass|include)"
    r"|<(?:important|system|instructions?|secret|hidden)>"
    r"|system prompt",
    re.IGNORECASE,
)
_SECRETS: Final = lazy(
    r"/etc/(?:passwd|shadow)|private key of the user|contents? of (?:the )?(?:conversation|chat)",
    re.IGNORECASE,
)


class Finding(Struct, frozen=True):
    """A suspicious text in a server's description, and where it is."""

    rule: RuleId
    part: str
    """The name of the tool, the prompt or other part."""
    where: str
    """The path to the text, as in `inputSchema.properties.x.description`."""
    shown: str
    """The place in the text, with visible characters."""

    def __str__(self) -> str:
        place = f", {visible(self.where)}" if self.where else ""
        return f'{visible(self.part)}{place}: {self.rule}: "{self.shown}"'


def scan(part: str, value: Json, other_servers: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield the signs in one part.

    Args:
        part: its name.
        value: what its server wrote.
        other_servers: the names of the others, which it should not know.
    """
    others = _named(other_servers)
    for where, text in _texts(value, ""):
        for rule, found in _signs(text[:_MOST], others):
            yield Finding(rule, part, where, _excerpt(text, found))


def _signs(text: str, others: "re.Pattern[str] | None") -> Iterator[tuple[RuleId, tuple[int, int]]]:
    # By distinct character: texts are long, and use few different characters.
    if hidden := [one for one in set(text) if is_hidden(one)]:
        first = min(map(text.index, hidden))
        yield "hidden-characters", (first, first + 1)
    if found := _INSTRUCTS.search(text):
        yield "instructs-the-model", found.span()
    if secret := named_in(text) or _span(_SECRETS.search(text)):
        yield "speaks-of-secrets", secret
    if others is not None and (found := others.search(text)):
        yield "names-another-server", found.span()


def _span(found: "re.Match[str] | None") -> tuple[int, int] | None:
    return None if found is None else found.span()


def _named(servers: Sequence[str]) -> "re.Pattern[str] | None":
    """Return tools of other servers, as the agent knows them: `server__tool`."""
    if not servers:
        return None
    return re.compile(r"\b(?:" + "|".join(map(re.escape, servers)) + r")__\w")


def _texts(value: Json, where: str, depth: int = 32) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif depth == 0:
        return
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield f"{where}.{name}".lstrip("."), name
            yield from _texts(inner, f"{where}.{name}".lstrip("."), depth - 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, where, depth - 1)


def _excerpt(text: str, span: tuple[int, int]) -> str:
    start = max(0, span[0] - _SHOWN // 3)
    return visible(text[start : start + _SHOWN])
