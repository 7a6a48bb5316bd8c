"""Combining a preset with the tools of a person's servers into the files that `serve` reads.

Rules are written for each server and tool. A tool that appears later has no annotation, and is
denied.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Final

import orjson

from ironcurtain_proxy.config.annotating.annotate import as_annotations
from ironcurtain_proxy.config.annotating.read_tool import ReadServer, ReadTool, ToolKind
from ironcurtain_proxy.config.policy.policy_files import POLICY_NAME, SHIPPED
from ironcurtain_proxy.config.presets.preset import Preset, PresetRule
from ironcurtain_proxy.model.json import Json

_BY_TOOL: Final[frozenset[ToolKind]] = frozenset({"unknown", "looks", "keeps"})
"""Kinds whose rules name each tool. For the others the roles or the server suffice."""
_SECRETS: Final = "@secrets"
_NAMES_RULE: Final = "escalate-read-secret-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The files that are written below `~/.ironcurtain`."""

    policy: dict[str, Json]
    annotations: dict[str, Json]
    config: dict[str, Json]


def compose(preset: Preset, servers: Sequence[ReadServer], workspace: str) -> Documents:
    """The documents of a preset for these servers.

    Args:
        preset: which.
        servers: with their tools as they were read.
        workspace: written into the configuration.
    """
    return Documents(
        policy={
            "_comment": f"Written by init, preset {preset.name}. {preset.title} A rule decides "
            "where no one before it did; what no rule names is denied.",
            "rules": [rule for template in preset.rules for rule in _rules(template, servers)],
        },
        annotations=as_annotations(servers),
        config=_config(preset, servers, workspace),
    )


def _rules(template: PresetRule, servers: Sequence[ReadServer]) -> Iterator[Json]:
    about = template.about
    by_annotations: dict[str, list[ReadTool]] = {}
    for server in servers:
        tools = by_annotations.setdefault(server.annotations, [])
        known = {tool.name for tool in tools}
        tools += [tool for tool in server.tools if not tool.is_denied and tool.name not in known]
    found = {
        name: [tool.name for tool in tools if tool.kind == about]
        for name, tools in by_annotations.items()
    }
    having = [name for name, tools in found.items() if tools]
    if not having:
        return
    if about in _BY_TOOL:
        for name in having:
            condition: dict[str, Json] = {"server": [name], "tool": [*found[name]]}
            yield _rule(template, f"{template.name}-{name}", condition)
        return
    if about == "shell":
        # INVARIANT: names no tool. The approval mode never asks about a tool that a rule names.
        yield _rule(template, template.name, {"server": [*having]})
        return
    roles = _roles_of(template.condition)
    if any(not roles.isdisjoint(_roles_in(tool)) for ts in by_annotations.values() for tool in ts):
        yield _rule(template, template.name, _filled(template.condition))


def _rule(template: PresetRule, name: str, condition: dict[str, Json]) -> Json:
    return {
        "name": name,
        "description": template.reason,
        "if": condition,
        "then": template.then,
        "reason": template.reason,
    }


def _filled(condition: Mapping[str, Json]) -> dict[str, Json]:
    filled = deepcopy(dict(condition))
    names = filled.get("names")
    if isinstance(names, dict) and names.get("matching") == _SECRETS:
        names.update(_secret_names())
    return filled


@cache
def _secret_names() -> Mapping[str, Json]:
    """The secret file names, which are defined once, in the shipped policy."""
    rules = orjson.loads((SHIPPED / POLICY_NAME).read_bytes())["rules"]
    (names,) = [rule["if"]["names"] for rule in rules if rule["name"] == _NAMES_RULE]
    return {"matching": names["matching"], "unless": names["unless"]}


def _roles_of(condition: Mapping[str, Json]) -> frozenset[str]:
    inner = [condition, *[one for one in condition.values() if isinstance(one, Mapping)]]
    lists = [one.get("roles") for one in inner]
    return frozenset([str(role) for one in lists if isinstance(one, list) for role in one])


def _roles_in(tool: ReadTool) -> frozenset[str]:
    found: set[str] = set()
    for spec in tool.arguments.values():
        roles = spec.get("default") if isinstance(spec, Mapping) else spec
        found.update([str(role) for role in roles] if isinstance(roles, list) else [])
    return frozenset(found)


def _config(preset: Preset, servers: Sequence[ReadServer], workspace: str) -> dict[str, Json]:
    config: dict[str, Json] = {
        "_preset": preset.name,
        "allowedDirectory": workspace,
        **deepcopy(dict(preset.config)),
    }
    commands: dict[str, Json] = {
        f"{server.name}/{tool.name}": {"commandArgument": tool.command}
        for server in servers
        for tool in server.tools
        if tool.kind == "shell"
    }
    if commands:
        section = config.setdefault("capabilities", {})
        if isinstance(section, dict):
            section["tools"] = commands
    asked: list[Json] = [
        f"{server.name}/{tool.name}"
        for server in servers
        for tool in server.tools
        if tool.changes and tool.kind in preset.always_asked
    ]
    security = config.get("security")
    interceptor = security.get("interceptor") if isinstance(security, dict) else None
    if asked and isinstance(interceptor, dict):
        interceptor["sensitiveTools"] = asked
    return config
