"""The presets that come with the package."""

from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias  # noqa: TID251  msgspec knows no recursive `Json`

import orjson
from msgspec import Struct, convert, field

from ironcurtain_proxy.config.annotating.read_tool import ToolKind

PresetName: TypeAlias = Literal["coding", "supervised", "read-only"]

PRESETS: Final[tuple[PresetName, ...]] = ("coding", "supervised", "read-only")
_SHIPPED: Final = Path(__file__).parent / "shipped"


class PresetRule(Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule with the kinds of tools that it applies to."""

    about: ToolKind
    """The kind of tools. The rule is left out where no server has such a tool."""
    name: str
    condition: dict[str, Any] = field(name="if")
    then: str
    reason: str
    contained_reads: bool = False


class Preset(Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of a preset, independent of the servers."""

    name: PresetName
    title: str
    """One sentence for people."""
    config: dict[str, Any]
    """Sections of `config.json`."""
    always_asked: frozenset[str]
    """The kinds of tools that are asked about for each possible change."""
    rules: tuple[PresetRule, ...]


@cache
def preset(name: PresetName) -> Preset:
    """One of the presets."""
    data = orjson.loads((_SHIPPED / f"{name}.json").read_bytes())
    return convert({"name": name, **data}, Preset)
