"""The presets that come with the package, and the part of each that holds for all servers.

That part stays in the package as the base of an operator's rules, so that a new version mends it.
Rules that name single tools are written by `init` into the operator's own layer.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias  # noqa: TID251  msgspec knows no recursive `Json`

import orjson
from msgspec import Struct, convert, field

from ironcurtain_proxy.config.annotating.proposal import ToolKind
from ironcurtain_proxy.credentials.table import table_bytes
from ironcurtain_proxy.model.json import Json

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
    """Return one of the presets."""
    data = orjson.loads((_SHIPPED / f"{name}.json").read_bytes())
    return convert({"name": name, **data}, Preset)


BY_TOOL: Final[frozenset[ToolKind]] = frozenset({"unknown", "looks", "keeps"})
"""The kinds of tools whose rules name each tool. For other kinds the roles or the server suffice.
"""


def base_rules(name: PresetName, command_servers: Sequence[str]) -> list[Json]:
    """Return the rules of a preset that name no tool, in its order.

    Args:
        name: the preset.
        command_servers: servers that run commands, by the names that rules use.
    """
    rules: list[Json] = []
    for template in preset(name).rules:
        if template.about == "shell":
            if command_servers:
                # INVARIANT: names no tool. The approval mode never asks about a tool that a rule
                # names.
                rules.append(as_rule(template, template.name, {"server": [*command_servers]}))
        elif template.about not in BY_TOOL:
            rules.append(as_rule(template, template.name, deepcopy(dict(template.condition))))
    return rules


def base_document(name: PresetName, command_servers: Sequence[str]) -> tuple[bytes, list[Json]]:
    """The rules of a preset, and the bytes that stand for them in the version of a policy."""
    rules = base_rules(name, command_servers)
    return orjson.dumps(rules) + table_bytes(), rules


def as_rule(template: PresetRule, name: str, condition: dict[str, Json]) -> Json:
    """Return a rule of a preset as it stands in a policy file."""
    rule: dict[str, Json] = {
        "name": name,
        "description": template.reason,
        "if": condition,
        "then": template.then,
        "reason": template.reason,
    }
    return rule | {"containedReads": True} if template.contained_reads else rule
