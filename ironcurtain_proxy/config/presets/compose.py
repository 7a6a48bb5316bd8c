"""The files that `serve` reads, composed from a preset and a person's servers.

Rules are written for each server and tool; the others are the preset's base, which stays in the
package. A tool that appears later has no annotation: `unknownTools` decides.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from ironcurtain_proxy.config.annotating.annotate import as_annotations
from ironcurtain_proxy.config.annotating.known import roles_in
from ironcurtain_proxy.config.annotating.proposal import ReadServer, ReadTool, ToolKind
from ironcurtain_proxy.config.presets.preset import BY_TOOL, Preset, as_rule
from ironcurtain_proxy.model.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The files that are written below `~/.ironcurtain`."""

    policy: dict[str, Json]
    annotations: dict[str, Json]
    config: dict[str, Json]


def compose(preset: Preset, servers: Sequence[ReadServer], workspace: str) -> Documents:
    """Return the documents of a preset for these servers.

    Args:
        preset: the preset.
        servers: with their tools as they were read.
        workspace: the workspace for the configuration.
    """
    return Documents(
        policy=_policy(preset, servers),
        annotations=as_annotations(servers),
        config=_config(preset, servers, workspace),
    )


def _policy(preset: Preset, servers: Sequence[ReadServer]) -> dict[str, Json]:
    """Return the rules besides the preset's own, which stay in the package."""
    tools = _by_annotations(servers)
    rules = [
        as_rule(template, f"{template.name}-{name}", {"server": [name], "tool": [*found]})
        for template in preset.rules
        if template.about in BY_TOOL
        for name, found in _of_kind(tools, template.about).items()
    ]
    if any(template.about == "looks" and template.then == "allow" for template in preset.rules):
        rules = [*_sql_that_reads(servers), *rules]
    document: dict[str, Json] = {
        "_comment": f"Written by init, preset {preset.name}. {preset.title} These rules are asked "
        'before those of "base"; what no rule names is denied.',
        "base": preset.name,
        "rules": rules,
    }
    commands: list[Json] = [*_of_kind(tools, "shell")]
    if commands:
        document["commandServers"] = commands
    return document


def _sql_that_reads(servers: Sequence[ReadServer]) -> list[Json]:
    """Return rules that allow SQL which only reads, for databases whose package is known."""
    found: dict[str, dict[str, None]] = {}
    for server in servers:
        for tool in server.tools:
            if tool.is_packed and any("sql" in roles_in(one) for one in tool.arguments.values()):
                found.setdefault(server.annotations, {})[tool.name] = None
    reason = "SQL that only reads shows what is in the database."
    return [
        {
            "name": f"allow-sql-reads-{name}",
            "description": reason,
            "if": {"server": [name], "tool": [*tools], "sql": "reads"},
            "then": "allow",
            "reason": reason,
        }
        for name, tools in found.items()
    ]


def _by_annotations(servers: Sequence[ReadServer]) -> dict[str, list[ReadTool]]:
    found: dict[str, list[ReadTool]] = {}
    for server in servers:
        tools = found.setdefault(server.annotations, [])
        known = {tool.name for tool in tools}
        tools += [tool for tool in server.tools if not tool.is_denied and tool.name not in known]
    return found


def _of_kind(tools: Mapping[str, list[ReadTool]], kind: ToolKind) -> dict[str, list[Json]]:
    """Return the names of the tools of a kind, by server; servers without any are left out."""
    found: dict[str, list[Json]] = {
        name: [tool.name for tool in known if tool.kind == kind] for name, known in tools.items()
    }
    return {name: names for name, names in found.items() if names}


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
