"""The MCP clients whose configurations are known: their files, and the form of an entry.

`docs/clients.md` says where each form was found, and when.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias  # noqa: TID251  msgspec knows no recursive `Json`

from msgspec import Struct
from msgspec.json import decode

from ironcurtain_proxy.config.clients.json_text import JsonText
from ironcurtain_proxy.config.clients.text_format import TablePath, TextFormat
from ironcurtain_proxy.config.clients.toml_text import TomlText
from ironcurtain_proxy.config.clients.yaml_text import YamlText
from ironcurtain_proxy.model.json import Json

FormatName: TypeAlias = Literal["json", "toml", "yaml"]

FORMATS: Final[Mapping[FormatName, TextFormat]] = MappingProxyType(
    {"json": JsonText(), "toml": TomlText(), "yaml": YamlText()}
)

VariableForm: TypeAlias = Literal["none", "braced", "shell"]
"""The variables that a client replaces in an entry's texts: `${…}`, and for `shell` `$NAME`."""

_VARIABLES: Final[Mapping[VariableForm, re.Pattern[str]]] = MappingProxyType(
    {
        "none": re.compile(r"(?!)"),
        "braced": re.compile(r"\$\{[^}]*\}"),
        "shell": re.compile(r"\$\{[^}]*\}|\$[A-Za-z_]\w*"),
    }
)


class KnownClient(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One client, as `known.json` describes it."""

    id: str
    name: str
    format: FormatName
    key: str
    """The table of servers in its files."""
    projects_key: str = ""
    """A table by project in the user's file, each with a table of servers."""
    user_files: tuple[str, ...] = ()
    """Paths below the home directory."""
    project_files: tuple[str, ...] = ()
    """Paths below the workspace."""
    variables: VariableForm = "none"
    command_key: str = "command"
    env_key: str = "env"
    before: dict[str, Any] = {}
    """Keys of an entry that stand before its command."""
    after: dict[str, Any] = {}
    """Keys of an entry that stand after its variables. Where a client waits only so long for an
    answer, that is ten minutes: a person may be asked."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """One variable in a text."""
        return _VARIABLES[self.variables]


CLIENTS: Final = decode(
    Path(__file__).with_suffix(".json").read_bytes(), type=tuple[KnownClient, ...]
)

_FORMAT_OF: Final[Mapping[str, FormatName]] = MappingProxyType(
    {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
)


def format_of(file: Path) -> FormatName:
    """Return the format of a file, by its ending."""
    return _FORMAT_OF.get(file.suffix.lower(), "json")


def client_of(file: Path, document: Json) -> KnownClient | None:
    """The client that a file belongs to, by its table of servers; None: it has no such table."""
    keys = document if isinstance(document, dict) else {}
    fitting = [one for one in CLIENTS if one.key in keys and one.format == format_of(file)]
    same_name = [one for one in fitting if file.name in {Path(known).name for known in _files(one)}]
    return next(iter([*same_name, *fitting]), None)


def places_of(client: KnownClient, project: str | None) -> tuple[TablePath, ...]:
    """Return the tables of servers in a file of a client: for everything, and for one project."""
    if not client.projects_key or project is None:
        return ((client.key,),)
    return (client.key,), (client.projects_key, project, client.key)


def entry_of(
    client: KnownClient, command: str, args: list[str], env: dict[str, str]
) -> dict[str, Json]:
    """Return the entry that makes a client start a command."""
    words: list[Json] = [*args]
    variables: dict[str, Json] = {**env}
    start = {client.command_key: command, "args": words, client.env_key: variables}
    return {**client.before, **start, **client.after}


def _files(client: KnownClient) -> Iterator[str]:
    yield from client.user_files
    yield from client.project_files
