"""The difference of a server from its pins: changed, new and renamed parts, in words."""

import difflib
import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.pinning import SECTIONS, Section
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.pins.pinned import PinnedPart, ServerPins

PinChangeKind: TypeAlias = Literal["changed", "new", "renamed"]

_ALIKE: Final = 0.9
"""The least likeness for which a new tool is taken for a renamed one."""
_MOST_COMPARED: Final = 20_000
"""Characters of a part that are compared for likeness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinChange:
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
    twin = next((other for other, known in trusted.items() if _alike(known, part)), "")
    return PinChange(
        section=section,
        name=name,
        kind="renamed" if twin else "new",
        was=twin,
        before=trusted.get(twin),
        after=part,
    )


def _alike(one: PinnedPart, other: PinnedPart) -> bool:
    """Return whether two parts are almost equal except for their names, False if large."""
    if one.value is None or other.value is None:
        return False
    left, right = _without_name(one.value), _without_name(other.value)
    if not left or len(left) + len(right) > _MOST_COMPARED:
        return False
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    return matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE


def _without_name(value: Json) -> str:
    if not isinstance(value, dict):
        return ""
    rest = {key: inner for key, inner in value.items() if key not in {"name", "title"}}
    return json.dumps(rest, sort_keys=True) if rest else ""


def _lines(part: PinnedPart) -> Sequence[str]:
    if part.value is None:
        return [f"(too large to be kept: SHA-256 {part.digest})"]
    if isinstance(part.value, str):
        return [visible(line) for line in part.value.splitlines()]
    text = json.dumps(part.value, indent=2, sort_keys=True, ensure_ascii=False)
    return [visible(line) for line in text.splitlines()]
