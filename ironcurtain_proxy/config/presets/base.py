"""The part of a preset that holds for every set of servers: the base of an operator's rules.

It stays in the package, so that a new version mends it. Rules that name single tools are written by
`init` into the operator's own layer.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Final

import orjson

from ironcurtain_proxy.config.annotating.read_tool import ToolKind
from ironcurtain_proxy.config.presets.preset import PresetName, PresetRule, preset
from ironcurtain_proxy.credentials.table import table_bytes
from ironcurtain_proxy.model.json import Json

BY_TOOL: Final[frozenset[ToolKind]] = frozenset({"unknown", "looks", "keeps"})
"""The kinds of tools whose rules name each tool. For other kinds the roles or the server suffice.
"""


def base_rules(name: PresetName, command_servers: Sequence[str]) -> list[Json]:
    """The rules of a preset that name no tool, in its order.

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
    """A rule of a preset as it stands in a policy file."""
    rule: dict[str, Json] = {
        "name": name,
        "description": template.reason,
        "if": condition,
        "then": template.then,
        "reason": template.reason,
    }
    return rule | {"containedReads": True} if template.contained_reads else rule
