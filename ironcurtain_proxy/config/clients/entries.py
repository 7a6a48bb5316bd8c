"""The MCP clients whose configurations are known, and one server of a client in our own form.

`docs/clients.md` says where each form of an entry was found, and when. The command in an entry that
starts this proxy has an absolute path: graphical clients have another PATH.

Clients call the address of a server over HTTP `url`, `serverUrl`, `httpUrl` or `uri`, and fill
variables into their texts. A header that only the client can fill in stays in the client's file and
reaches the proxy in `SERVER_CREDENTIALS`.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias  # noqa: TID251  msgspec knows no recursive `Json`

import orjson
from msgspec import Struct, field
from msgspec.json import decode
from msgspec.structs import replace

from ironcurtain_proxy.config.clients.text_format import (
    JsonText,
    TablePath,
    TextFormat,
    YamlText,
)
from ironcurtain_proxy.config.clients.toml_text import TomlText
from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.config.reading.forms import fill
from ironcurtain_proxy.config.servers.remote_entry import NETWORK_TYPES, RemoteForm
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json, object_of

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
    Path(__file__).with_name("known.json").read_bytes(), type=tuple[KnownClient, ...]
)

_FORMAT_OF: Final[Mapping[str, FormatName]] = MappingProxyType(
    {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
)


def format_of(file: Path) -> FormatName:
    """Return the format of a file, by its ending."""
    return _FORMAT_OF.get(file.suffix.lower(), "json")


def client_of(file: Path, document: Json) -> KnownClient | None:
    """Return the client that a file belongs to, by its table of servers.

    It is None if it has no such table.
    """
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


# --- entries


_WORKSPACE: Final = frozenset({"workspaceFolder", "workspaceRoot"})
_HOME: Final = frozenset({"userHome", "HOME", "env:HOME"})
_SLASH: Final = frozenset({"pathSeparator", "/"})


class VariableDirectories(Struct, frozen=True):
    """The directories that variables stand for."""

    workspace: str
    home: str


def filled(text: str, client: KnownClient, places: VariableDirectories) -> str:
    """Return a text with the variables of known directories replaced."""
    return client.pattern.sub(lambda found: _known(found, places), text)


def is_open(text: str, client: KnownClient) -> bool:
    """Return whether a text has variables that only the client can replace."""
    return client.pattern.search(text) is not None


def guessed(text: str, client: KnownClient, environ: Mapping[str, str]) -> str:
    """Return a text with variables of this environment, which suffices to list a server's tools."""
    return client.pattern.sub(lambda found: _from(environ, found), text)


def _known(found: re.Match[str], places: VariableDirectories) -> str:
    name = _name(found)
    if name in _WORKSPACE:
        return places.workspace
    if name in _HOME:
        return places.home
    return "/" if name in _SLASH else found[0]


def _from(environ: Mapping[str, str], found: re.Match[str]) -> str:
    name, _, default = _name(found).removeprefix("env:").partition(":-")
    return environ.get(name, default or found[0])


def _name(found: re.Match[str]) -> str:
    return found[0].removeprefix("$").removeprefix("{").removesuffix("}")


ADDRESSES: Final = ("url", "serverUrl", "httpUrl", "uri")
HEADERS: Final = ("headers", "http_headers")
_KINDS: Final = NETWORK_TYPES | {"streamable_http"}
_HEADERS_ELSEWHERE: Final = ("bearer_token_env_var", "env_http_headers", "headersHelper")


def is_network(entry: Mapping[str, Json]) -> bool:
    """Return whether an entry is one of a server that is reached over the network."""
    return entry.get("type") in _KINDS or any(entry.get(name) for name in ADDRESSES)


def network_entry(
    client: KnownClient, entry: Mapping[str, Json], places: VariableDirectories
) -> tuple[dict[str, Json], dict[str, str]] | str:
    """Return the entry, and the texts that only the client can fill in; or why the server stays."""
    given = next((one for name in ADDRESSES if isinstance(one := entry.get(name), str)), "")
    url = filled(given, client, places)
    headers = next((one for name in HEADERS if (one := entry.get(name))), {})
    why = _why_not(client, entry, url, headers)
    if why or not isinstance(headers, dict):
        return why
    written: dict[str, Json] = {"url": url}
    if entry.get("type") == "sse":
        written["type"] = "sse"
    if isinstance(entry.get("oauth"), dict):
        written["oauth"] = entry["oauth"]
    texts = {name: filled(str(value), client, places) for name, value in headers.items()}
    still_open = {_variable(name): text for name, text in texts.items() if is_open(text, client)}
    if texts:
        written["headers"] = {
            name: f"${{{_variable(name)}}}" if is_open(text, client) else text
            for name, text in texts.items()
        }
    return _mistake(written) or (written, still_open)


def _why_not(client: KnownClient, entry: Mapping[str, Json], url: str, headers: Json) -> str:
    """Return the reason why a server stays with its client, or an empty text if it can be moved."""
    if is_open(url, client):
        return f"only {client.name} can fill in its address"
    for key in _HEADERS_ELSEWHERE:
        if entry.get(key):
            return f'its "{key}" takes a header from a place that the proxy cannot read'
    texts = headers.values() if isinstance(headers, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        return "its headers are not understood"
    if any("${" in str(text) and not is_open(str(text), client) for text in texts):
        return "its headers name variables that are not understood"
    return ""


def _variable(header: str) -> str:
    """Return the name of a header's secret among the server's credentials."""
    return "HEADER_" + re.sub(r"\W", "_", header, flags=re.ASCII).upper()


def _mistake(entry: dict[str, Json]) -> str:
    """Return the reason why the proxy would refuse an entry; empty: it accepts the entry."""
    report = Report()
    fill(DocumentNode(entry, "", report), RemoteForm, foreign=True)
    errors = [one for one in report.problems if one.severity == "error"]
    if not errors:
        return ""
    return f"its {errors[0].json_path.removeprefix('$.')} {errors[0].message}"


OURSELVES: Final = frozenset({"ironcurtain-proxy", "ironcurtain_proxy"})
_OUR_NAMES: Final = OURSELVES | {"ironcurtain", "ironcurtain-project", "ironcurtain-local"}
SWITCHED_OFF: Final = "it is switched off there"
"""Why a server stays that its client does not start."""
_LIMITS: Final = (
    *("disabledTools", "excludeTools", "includeTools", "disabled_tools", "enabled_tools"),
    *("available_tools", "tools"),
)
_FROM_ELSEWHERE: Final = ("envFile", "env_keys", "env_vars")
_ITS_OWN: Final = frozenset(
    {"type", "name", "command", "cmd", "args", "env", "envs", "cwd", "description", "enabled"}
    | {"disabled", "source", "bundled", "timeout", "startup_timeout_sec", "tool_timeout_sec"}
    | {*ADDRESSES, *HEADERS, "oauth"}
)
"""Keys that are converted, or that do not concern the server itself."""


class MovableServer(Struct, frozen=True, kw_only=True):
    """A server that moves behind the proxy."""

    name: str
    """The name in the client's file."""
    entry: Mapping[str, Json]
    """The entry in the proxy's form."""
    open_variables: Mapping[str, str] = field(default_factory=dict)
    """The variables that only the client can fill in, with their texts."""
    unused: tuple[str, ...] = ()
    """Keys of the client that mean nothing to the proxy."""


class UnmovableServer(Struct, frozen=True, kw_only=True):
    """A server that stays as it is."""

    name: str
    why: str


class ProxyEntry(Struct, frozen=True):
    """An entry that starts this proxy already."""

    name: str
    value: Mapping[str, Json]


EntryReading: TypeAlias = MovableServer | UnmovableServer | ProxyEntry


def read_entry(
    client: KnownClient,
    name: str,
    value: Json,
    places: VariableDirectories,
    *,
    is_own: bool = False,
) -> EntryReading:
    """Read an entry of a client's file.

    Args:
        client: whose file it is.
        name: the server's.
        value: the entry.
        places: what its variables stand for.
        is_own: whether the file is the user's own. What another person wrote into a repository's
            file opens no sandbox.
    """
    if not isinstance(value, dict):
        return UnmovableServer(name=name, why="its entry is not understood")
    entry = _unwrapped(value)
    sandbox = entry.pop("sandbox", None) if is_own else None
    words = _words(client, entry)
    if words is not None and any(PurePosixPath(word).name in OURSELVES for word in words):
        return ProxyEntry(name, value)
    why = next(_reasons(client, entry), "")
    if not why and words is None and is_network(entry):
        return _network(client, name, entry, places)
    why = why or _why_odd(entry, words)
    if why or words is None:
        return UnmovableServer(name=name, why=why or "its command is not understood")
    taken = _taken(client, name, entry, words, places)
    if sandbox is None or isinstance(taken, UnmovableServer):
        return taken
    return replace(taken, entry={**taken.entry, "sandbox": sandbox})


def _unwrapped(value: dict[str, Json]) -> dict[str, Json]:
    """Return the entry, in one form for all clients.

    Before 2025-09 Zed had the command as an object.
    """
    entry = dict(value)
    command = entry.get("command")
    if isinstance(command, dict):
        entry |= {"command": command.get("path"), "args": command.get("args", [])}
        entry |= {"env": command["env"]} if command.get("env") is not None else {}
    for theirs, ours in (("cmd", "command"), ("envs", "env")):
        if theirs in entry and ours not in entry:
            entry[ours] = entry[theirs]
    return entry


def _words(client: KnownClient, entry: Mapping[str, Json]) -> list[str] | None:
    """Return the command and its arguments, or None if they are not texts."""
    del client
    command, args = entry.get("command"), entry.get("args")
    words = [command, *(args if isinstance(args, list) else [])]
    is_odd = args is not None and not isinstance(args, list)
    texts = [word for word in words if isinstance(word, str) and "\0" not in word]
    return None if is_odd or not command or len(texts) < len(words) else texts


def _reasons(client: KnownClient, entry: Mapping[str, Json]) -> Iterator[str]:
    if entry.get("disabled") is True or entry.get("enabled") is False:
        yield SWITCHED_OFF
    if client.id == "goose" and entry.get("type") != "stdio" and not is_network(entry):
        yield f"it is a part of {client.name}"
    if client.id == "zed" and entry.get("command") is None and not is_network(entry):
        yield "an extension of Zed starts it"
    yield from [f'"{key}" limits its tools there' for key in _LIMITS if entry.get(key)]
    for key in _FROM_ELSEWHERE:
        if entry.get(key):
            yield f'its "{key}" takes variables from a place that the proxy cannot read'


def _why_odd(entry: Mapping[str, Json], words: list[str] | None) -> str:
    if words is None:
        return "its command is not understood"
    env, cwd = entry.get("env"), entry.get("cwd")
    variables = env if isinstance(env, dict) else {}
    texts = [text for text in variables.values() if isinstance(text, str | int | float)]
    if (env is not None and not isinstance(env, dict)) or len(texts) < len(variables):
        return "its variables are not understood"
    if any(not key or "=" in key or "\0" in key for key in variables):
        return "its variables are not understood"
    return "" if cwd is None or isinstance(cwd, str) else "its directory is not understood"


def _network(
    client: KnownClient, name: str, entry: Mapping[str, Json], places: VariableDirectories
) -> MovableServer | UnmovableServer:
    if name in _OUR_NAMES:
        return UnmovableServer(name=name, why="it may be this proxy itself, over HTTP")
    found = network_entry(client, entry, places)
    if isinstance(found, str):
        return UnmovableServer(name=name, why=found)
    written, still_open = found
    unused = tuple(sorted(entry.keys() - _ITS_OWN))
    return MovableServer(name=name, entry=written, open_variables=still_open, unused=unused)


def _taken(
    client: KnownClient,
    name: str,
    entry: Mapping[str, Json],
    words: list[str],
    places: VariableDirectories,
) -> MovableServer | UnmovableServer:
    line = [filled(word, client, places) for word in words]
    cwd = entry.get("cwd")
    where = filled(cwd, client, places) if isinstance(cwd, str) else None
    if unclear := [word for word in (*line, where or "") if is_open(word, client)]:
        found = client.pattern.search(unclear[0])
        what = "" if found is None else found[0]
        return UnmovableServer(
            name=name, why=f"only {client.name} can fill in {what} of its command line"
        )
    variables = dict(_variables(client, entry, places))
    still_open = {key: text for key, text in variables.items() if is_open(text, client)}
    written: dict[str, Json] = {"command": line[0], "args": [*line[1:]]}
    env: dict[str, Json] = {key: text for key, text in variables.items() if key not in still_open}
    if env:
        written["env"] = env
    if where:
        written["cwd"] = where
    description = entry.get("description")
    if isinstance(description, str) and description:
        written["description"] = description
    unused = tuple(sorted(entry.keys() - _ITS_OWN))
    return MovableServer(name=name, entry=written, open_variables=still_open, unused=unused)


def _variables(
    client: KnownClient, entry: Mapping[str, Json], places: VariableDirectories
) -> Iterator[tuple[str, str]]:
    for key, value in object_of(entry.get("env")).items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        yield key, filled(text, client, places)
