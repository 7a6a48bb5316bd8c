"""Presets: read from the package, joined with a person's servers, and written.

The part of a preset that holds for all servers stays in the package as the base of an operator's
rules, so that a new version mends it. Rules that name single tools are written by `init` into the
operator's own layer. A tool that appears later has no annotation: `unknownTools` decides.

Nothing of the operator's is lost. An existing file with other content is kept, unless its owner
agreed to replace it; then it is renamed and kept beside the new one. The configuration is written
last: without it an interrupted set-up has no effect.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias  # noqa: TID251  msgspec knows no recursive `Json`

import orjson
from msgspec import Struct, convert, field

from ironcurtain_proxy.config.annotating.annotate import as_annotations, roles_in
from ironcurtain_proxy.config.annotating.texts import ReadServer, ReadTool, ToolKind
from ironcurtain_proxy.config.migration import create, rewrite
from ironcurtain_proxy.credentials import table_bytes
from ironcurtain_proxy.model.values import Json, object_of

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


BY_TOOL: Final[frozenset[ToolKind]] = frozenset({"unknown", "looks", "saves", "keeps"})
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
    """Return a preset's rules, and the bytes that stand for them in a policy's version."""
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


# --- writing


FileState: TypeAlias = Literal["new", "same", "elsewhere", "other"]
"""The state of a file. `elsewhere`: it differs only in its workspace, which each session may name.
"""


class PlannedFile(Struct, frozen=True):
    """The planned content of one file."""

    path: Path
    content: bytes
    before: bytes | None
    """The present content, or None if the file does not exist."""
    state: FileState


def planned(path: Path, document: Json) -> PlannedFile:
    """Return the changes that writing a document would make.

    Raises:
        OSError: an existing file cannot be read.
    """
    content = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        before = path.read_bytes()
    except FileNotFoundError:
        return PlannedFile(path, content, None, "new")
    return PlannedFile(path, content, before, _state(before, document))


def _state(before: bytes, document: Json) -> FileState:
    try:
        found = orjson.loads(before)
    except ValueError:
        return "other"
    if found == document:
        return "same"
    if isinstance(found, dict) and isinstance(document, dict):
        moved = {**found, "allowedDirectory": document.get("allowedDirectory")}
        if "allowedDirectory" in found and moved == document:
            return "elsewhere"
    return "other"


def write(files: Sequence[PlannedFile], now: datetime) -> list[tuple[PlannedFile, Path | None]]:
    """Write new and changed files, in this order. Returns each with the copy of its old content.

    Raises:
        OSError: a file could not be written; the files before it were written.
    """
    written: list[tuple[PlannedFile, Path | None]] = []
    for file in files:
        if file.before is None:
            create(file.path, file.content)
            written.append((file, None))
        elif file.before != file.content:
            written.append((file, rewrite(file.path, file.before, file.content, now)))
    return written


# --- compose


class Documents(Struct, frozen=True, kw_only=True):
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
        as_rule(
            template,
            f"{template.name}-{name}",
            {"server": [name], "tool": [*found], **template.condition},
        )
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
    interceptor = object_of(config.get("security")).get("interceptor")
    if asked and isinstance(interceptor, dict):
        interceptor["sensitiveTools"] = asked
    return config
