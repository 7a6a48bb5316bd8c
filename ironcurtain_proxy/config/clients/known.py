"""The MCP clients whose configurations are known: their files, and the form of an entry.

`docs/clients.md` says where each form was found, and when.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.config.clients.json_text import JsonText
from ironcurtain_proxy.config.clients.text_format import TablePath, TextFormat
from ironcurtain_proxy.config.clients.toml_text import TomlText
from ironcurtain_proxy.config.clients.yaml_text import YamlText
from ironcurtain_proxy.model.json import Json

FormatName: TypeAlias = Literal["json", "toml", "yaml"]

FORMATS: Final[Mapping[FormatName, TextFormat]] = MappingProxyType(
    {"json": JsonText(), "toml": TomlText(), "yaml": YamlText()}
)

EntryForm: TypeAlias = Literal["plain", "typed", "zed", "codex", "goose"]
"""The form of an entry. `plain`: `command`, `args`, `env`. `typed`: the same with `"type":
"stdio"`. The others are each that of one client."""

NO_VARIABLES: Final = re.compile(r"(?!)")
_BRACED: Final = re.compile(r"\$\{[^}]*\}")
_SHELL: Final = re.compile(r"\$\{[^}]*\}|\$[A-Za-z_]\w*")

_APPROVAL_SECONDS: Final = 600
"""Seconds that a client waits for an answer, if it has such a setting: a person may be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    """One client."""

    id: str
    name: str
    key: str
    """The table of servers in its files."""
    user_files: tuple[str, ...] = ()
    """Paths below the home directory."""
    project_files: tuple[str, ...] = ()
    """Paths below the workspace."""
    projects_key: str = ""
    """A table by project in the user's file, each with a table of servers."""
    form: EntryForm = "plain"
    format: FormatName = "json"
    variables: re.Pattern[str] = NO_VARIABLES
    """The variables that the client replaces in the texts of an entry."""


CLIENTS: Final = (
    KnownClient(
        id="claude-desktop",
        name="Claude Desktop",
        key="mcpServers",
        user_files=(
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
        ),
    ),
    KnownClient(
        id="claude-code",
        name="Claude Code",
        key="mcpServers",
        user_files=(".claude.json",),
        project_files=(".mcp.json",),
        projects_key="projects",
        form="typed",
        variables=_BRACED,
    ),
    KnownClient(
        id="cursor",
        name="Cursor",
        key="mcpServers",
        user_files=(".cursor/mcp.json",),
        project_files=(".cursor/mcp.json",),
        variables=_BRACED,
    ),
    KnownClient(
        id="vscode",
        name="VS Code",
        key="servers",
        user_files=(
            ".config/Code/User/mcp.json",
            ".config/Code - Insiders/User/mcp.json",
            ".config/VSCodium/User/mcp.json",
            "Library/Application Support/Code/User/mcp.json",
        ),
        project_files=(".vscode/mcp.json",),
        form="typed",
        variables=_BRACED,
    ),
    KnownClient(
        id="windsurf",
        name="Windsurf",
        key="mcpServers",
        user_files=(".codeium/windsurf/mcp_config.json",),
        variables=_BRACED,
    ),
    KnownClient(
        id="zed",
        name="Zed",
        key="context_servers",
        user_files=(".config/zed/settings.json",),
        project_files=(".zed/settings.json",),
        form="zed",
    ),
    KnownClient(
        id="codex",
        name="Codex",
        key="mcp_servers",
        user_files=(".codex/config.toml",),
        project_files=(".codex/config.toml",),
        form="codex",
        format="toml",
    ),
    KnownClient(
        id="gemini",
        name="Gemini CLI",
        key="mcpServers",
        user_files=(".gemini/settings.json",),
        project_files=(".gemini/settings.json",),
        variables=_SHELL,
    ),
    KnownClient(
        id="goose",
        name="Goose",
        key="extensions",
        user_files=(".config/goose/config.yaml",),
        form="goose",
        format="yaml",
    ),
)

_FORMAT_OF: Final[Mapping[str, FormatName]] = MappingProxyType(
    {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
)


def format_of(file: Path) -> FormatName:
    """The format of a file, by its ending."""
    return _FORMAT_OF.get(file.suffix.lower(), "json")


def client_of(file: Path, document: Json) -> KnownClient | None:
    """The client that a file belongs to, by its table of servers; None: it has no such table."""
    keys = document if isinstance(document, dict) else {}
    fitting = [one for one in CLIENTS if one.key in keys and one.format == format_of(file)]
    same_name = [one for one in fitting if file.name in {Path(known).name for known in _files(one)}]
    return next(iter([*same_name, *fitting]), None)


def places_of(client: KnownClient, project: str | None) -> tuple[TablePath, ...]:
    """The tables of servers in a file of a client: for everything, and for one project."""
    if not client.projects_key or project is None:
        return ((client.key,),)
    return (client.key,), (client.projects_key, project, client.key)


def entry_of(
    client: KnownClient, command: str, args: list[str], env: dict[str, str]
) -> dict[str, Json]:
    """The entry that makes a client start a command."""
    words: list[Json] = [*args]
    variables: dict[str, Json] = {**env}
    match client.form:
        case "plain":
            return {"command": command, "args": words, "env": variables}
        case "typed":
            return {"type": "stdio", "command": command, "args": words, "env": variables}
        case "zed":
            # Versions of 2025 refuse an entry without its source.
            return {"source": "custom", "command": command, "args": words, "env": variables}
        case "codex":
            return {
                "command": command,
                "args": words,
                "env": variables,
                "startup_timeout_sec": 60,
                "tool_timeout_sec": _APPROVAL_SECONDS,
            }
        case "goose":
            return {
                "enabled": True,
                "type": "stdio",
                "name": "ironcurtain",
                "description": "MCP servers behind IronCurtain Proxy",
                "cmd": command,
                "args": words,
                "envs": variables,
                "env_keys": [],
                "timeout": _APPROVAL_SECONDS,
            }


def _files(client: KnownClient) -> Iterator[str]:
    yield from client.user_files
    yield from client.project_files
