"""The presets that come with the package."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson

from ironcurtain_proxy.config.annotating.read_tool import ToolKind
from ironcurtain_proxy.model.json import Json

PresetName: TypeAlias = Literal["coding", "supervised", "read-only"]

PRESETS: Final[tuple[PresetName, ...]] = ("coding", "supervised", "read-only")
_SHIPPED: Final = Path(__file__).parent / "shipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetRule:
    """A rule with the kinds of tools that it applies to."""

    about: ToolKind
    """The kind of tools. The rule is left out where no server has such a tool."""
    name: str
    condition: Mapping[str, Json]
    then: str
    reason: str
    contained_reads: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The content of a preset, independent of the servers."""

    name: PresetName
    title: str
    """One sentence for people."""
    config: Mapping[str, Json]
    """Sections of `config.json`."""
    always_asked: frozenset[str]
    """The kinds of tools that are asked about for each possible change."""
    rules: tuple[PresetRule, ...]


@cache
def preset(name: PresetName) -> Preset:
    """One of the presets."""
    data = orjson.loads((_SHIPPED / f"{name}.json").read_bytes())
    return Preset(
        name=name,
        title=data["title"],
        config=data["config"],
        always_asked=frozenset(data["alwaysAsked"]),
        rules=tuple(
            [
                PresetRule(
                    about=rule["about"],
                    name=rule["name"],
                    condition=rule["if"],
                    then=rule["then"],
                    reason=rule["reason"],
                    contained_reads=rule.get("containedReads", False),
                )
                for rule in data["rules"]
            ]
        ),
    )
