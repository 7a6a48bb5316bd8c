"""The MCP clients whose files are known, and how each starts this proxy.

The MCP clients whose configurations are known: their files, and the form of an entry.

`docs/clients.md` says where each form was found, and when.

The command that starts this proxy. Its path is absolute: graphical clients have another PATH.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias  # noqa: TID251  msgspec knows no recursive `Json`

import orjson
from msgspec import Struct
from msgspec.json import decode

from ironcurtain_proxy.config.clients.text_format import JsonText, TablePath, TextFormat
from ironcurtain_proxy.config.clients.toml_text import TomlText
from ironcurtain_proxy.config.clients.yaml_text import YamlText
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json

# --- known


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


# --- own command


_PROGRAM: Final = "ironcurtain-proxy"


def own_command(environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the command and the arguments that start this proxy.

    Raises:
        ConfigurationError: this installation is temporary.
    """
    prefix = Path(sys.prefix)
    if _is_cache(prefix):
        return _through_uvx(environ)
    program = prefix / "bin" / _PROGRAM
    if program.is_file():
        return str(_short(program, environ)), []
    return sys.executable, ["-m", "ironcurtain_proxy"]


def _is_cache(prefix: Path) -> bool:
    """Return whether `uvx` or `pipx run` made this environment for one run."""
    return any(part.startswith(("archive-v", "builds-v")) for part in prefix.parts) or (
        prefix.parent.name == ".cache" and "pipx" in prefix.parts
    )


def _through_uvx(environ: Mapping[str, str]) -> tuple[str, list[str]]:
    uvx = shutil.which("uvx", path=environ.get("PATH"))
    if uvx is None:
        raise ConfigurationError(
            "this is a temporary installation, which a client cannot start: install the package "
            "with `uv tool install` or `pipx install` and run `init` again"
        )
    source = _source()
    given = ["--from", source] if source else []
    return str(Path(uvx).absolute()), [*given, _PROGRAM]


def _source() -> str:
    """Return the source of this installation; empty: a package index."""
    try:
        text = distribution(_PROGRAM).read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    url = str(orjson.loads(text).get("url", "")) if text else ""
    return url.removeprefix("file://")


def _short(program: Path, environ: Mapping[str, str]) -> Path:
    """Return the name on the PATH that leads to the program: it stays the same across versions."""
    found = shutil.which(_PROGRAM, path=environ.get("PATH"))
    if found is not None and os.path.realpath(found) == os.path.realpath(program):
        return Path(found).absolute()
    return program
