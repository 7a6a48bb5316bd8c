"""The servers of `mcp-servers.json`, or of a client's `{"mcpServers": {...}}`, and those that run.

The servers to run are chosen here, with their credentials and the workspace.

In our own form an unknown key is refused. In a client's form it is a warning: clients have keys of
their own, and the file is theirs. Arguments are passed on as they stand: the original put the
workspace in the place of the last one, which breaks every file not written for it. Servers that
want to know the workspace ask with `roots/list`.
"""

import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, assert_never  # noqa: TID251

from msgspec import UNSET, Meta, Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.config.reading.document import DocumentNode, Report, nearest, shown
from ironcurtain_proxy.config.reading.forms import (
    SCHEMA_KEY,
    CheckedForm,
    Form,
    FormMistake,
    Maybe,
    NameText,
    VariableName,
    fill,
    says,
)
from ironcurtain_proxy.config.reading.layers import Layers, real, rooted
from ironcurtain_proxy.config.reading.reading import is_there, read_document
from ironcurtain_proxy.config.servers.recognition import recognised
from ironcurtain_proxy.config.servers.remote_entry import (
    BaseEntryForm,
    EntryForm,
    RemoteForm,
    asked,
    is_remote,
)
from ironcurtain_proxy.model.server import BuiltIn, ServerSpec, ShownTools
from ironcurtain_proxy.model.values import Json, RealPath

_RESERVED: Final = "proxy"
_MAX_NAME: Final = 100
_COMMON_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")

WORKSPACE: Final = "@workspace"
"""The value of a server's `cwd` that stands for the session's workspace."""
OWN_SHELL: Final = "own-shell"
"""The name of our own shell in policy and annotations."""
SHELL_MODULE: Final = "ironcurtain_proxy.own_shell.program"

_ProcessText: TypeAlias = Annotated[str, says(r"[^\x00]*", "must not hold NUL")]
_PrivateFolder: TypeAlias = Annotated[
    str,
    says(
        r"~(/(?!\.{1,2}(/|$))[^/\x00]+)+",
        "must be a folder of the home directory, such as ~/.tool",
        1,
    ),
]

_LAST_PORT: Final = 65_535
_SERVICE: Final = r"(?!169\.254\.)[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?:[1-9][0-9]{0,4}"
_Service: TypeAlias = Annotated[
    str,
    says(
        _SERVICE,
        "must be a host and a port, such as 127.0.0.1:5432",
        1,
    ),
]


class FilesystemForm(Form, frozen=True, kw_only=True):
    """The files that a sandbox opens and closes."""

    allow_write: tuple[NameText, ...] = ()
    allow_read: tuple[NameText, ...] = ()
    deny_read: tuple[NameText, ...] = ()
    deny_write: tuple[NameText, ...] = ()
    private: tuple[_PrivateFolder, ...] = ()
    """Folders of the home directory that the server gets for itself."""


class NetworkForm(CheckedForm, frozen=True, kw_only=True):
    """The hosts that a sandbox opens and closes."""

    allowed_domains: tuple[NameText, ...] = ()
    denied_domains: tuple[NameText, ...] = ()
    services: tuple[_Service, ...] = ()
    """Services as `host:port`, which the server finds on its loopback under the same port."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield ports that do not exist, and ports that two services share."""
        ports: set[int] = set()
        for number, service in enumerate(self.services):
            if re.fullmatch(_SERVICE, service) is None:
                continue  # said by its type
            port = int(service.rpartition(":")[2])
            if port > _LAST_PORT or port in ports:
                why = "is the port of another service, too" if port in ports else "is no port"
                yield ("services", number), f"{port} {why}", ""
            ports.add(port)


class LimitsForm(Form, frozen=True, kw_only=True):
    """The most that a server may use. Less starts no server, more no machine has."""

    processes: Maybe[Annotated[int, Meta(ge=16, le=4_194_304)]] = UNSET
    open_files: Maybe[Annotated[int, Meta(ge=64, le=1_048_576)]] = UNSET
    memory_mb: Maybe[Annotated[int, Meta(ge=64, le=1 << 30)]] = UNSET
    free_disk_mb: Maybe[Annotated[int, Meta(ge=0, le=1 << 30)]] = UNSET


class SandboxForm(CheckedForm, frozen=True, kw_only=True):
    """The sandbox of a server."""

    filesystem: FilesystemForm = FilesystemForm()
    network: NetworkForm | bool = NetworkForm()
    """`false` leaves the server without any network."""
    limits: LimitsForm = LimitsForm()

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield `true` for the network, which nothing stands for."""
        if self.network is True:
            yield ("network",), "must be an object, not true or false", ""


class ProcessForm(EntryForm, frozen=True, kw_only=True):
    """A server that is started here."""

    command: NameText
    args: tuple[_ProcessText, ...] = ()
    env: dict[VariableName, _ProcessText] = field(default_factory=dict)
    cwd: Maybe[NameText] = UNSET
    """Absolute, below `~/`, or `@workspace`; a directory of its own if absent."""
    type: Literal["stdio"] = "stdio"
    sandbox: Maybe[SandboxForm | bool] = UNSET
    """`false` runs the server unconfined."""
    allowed_domains: tuple[NameText, ...] = ()
    """The hosts of a server without a sandbox."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield hosts in a place that is for servers without a sandbox."""
        if self.allowed_domains and self.sandbox is not False:
            message = "is for servers without a sandbox: write sandbox.network.allowedDomains"
            yield ("allowedDomains",), message, ""


class BuiltinForm(BaseEntryForm, frozen=True, kw_only=True):
    """A server of our own."""

    builtin: BuiltIn
    env: dict[VariableName, _ProcessText] = field(default_factory=dict)
    sandbox: Maybe[SandboxForm | bool] = UNSET


EntryFormKind: TypeAlias = type[ProcessForm | BuiltinForm | RemoteForm]


def form_of(entry: Json) -> EntryFormKind:
    """Return the form that an entry has."""
    if is_remote(entry):
        return RemoteForm
    return BuiltinForm if isinstance(entry, dict) and "builtin" in entry else ProcessForm


def read_servers_file(path: Path, home: Path, report: Report) -> tuple[ServerSpec, ...]:
    """Return the servers of a file; mistakes are in the report."""
    read = read_document(path, report)
    return () if read is None else parse_servers(read[1], home)


def parse_servers(root: DocumentNode, home: Path) -> tuple[ServerSpec, ...]:
    """Return the servers of a document in either form; mistakes are in the report."""
    if isinstance(root.value, dict) and "mcpServers" in root.value:
        wrapper = root.object(("mcpServers", SCHEMA_KEY), foreign=True)
        return ServersReader(home, foreign=True).servers(wrapper.required("mcpServers"))
    return ServersReader(home).servers(root)


class ServersReader(Struct, frozen=True):
    """Reads the entries of one document."""

    home: Path
    foreign: bool = False
    """Whether the entries may have unknown keys of a client."""

    def servers(self, node: DocumentNode) -> tuple[ServerSpec, ...]:
        """Return the servers, in file order."""
        entries = {
            n: entry
            for n, entry in node.members().items()
            if n != SCHEMA_KEY and not n.startswith("_")
        }
        for shorter, longer in permutations(entries, 2):
            # `a__b__c` could be tool `b__c` of server `a`, or tool `c` of server `a__b`.
            if (longer + "__").startswith(shorter + "__"):
                entries[longer].error(
                    f"its tools could be taken for those of {shown(shorter)}: rename one"
                )
        specs = [self._server(name, entry) for name, entry in entries.items()]
        for spec in specs:
            if spec is not None and "url" in spec.ask and not spec.allowed_domains:
                entries[spec.name].at("ask").warning(
                    f"every page is declined: no host is named in {_place_of_hosts(spec)}"
                )
        return tuple([spec for spec in specs if spec is not None])

    def _server(self, name: str, node: DocumentNode) -> ServerSpec | None:
        _check_name(node, name)
        entry = node.value
        if self.foreign and isinstance(entry, dict) and entry.get("disabled") is True:
            node.warning("is disabled there: not started")
            return None
        form = fill(node, form_of(entry), foreign=self.foreign)
        if form.annotations:
            _check_name(node.at("annotations"), form.annotations)
        match form:
            case RemoteForm():
                return ServerSpec(
                    **_common(name, form),
                    command="",
                    sandbox=False,
                    allowed_domains=_domains(form.allowed_domains),
                    remote=form.endpoint(),
                )
            case BuiltinForm():
                return ServerSpec(
                    **_common(name, form, OWN_SHELL),
                    **self._started(node, form),
                    command=sys.executable,
                    args=("-I", "-m", SHELL_MODULE),
                    cwd=WORKSPACE,
                    builtin=form.builtin,
                )
            case ProcessForm():
                return ServerSpec(
                    **_common(name, form, recognised(form.command, form.args)),
                    **self._started(node, form),
                    command=form.command,
                    args=form.args,
                    cwd=self._directory(node.at("cwd"), form.cwd),
                )
            case _:
                assert_never(form)

    def _started(self, node: DocumentNode, form: ProcessForm | BuiltinForm) -> dict[str, Any]:
        """Return the fields of a server that is started here."""
        args = form.args if isinstance(form, ProcessForm) else ()
        texts: list[tuple[str, str | int, str]] = [
            *[("env", name, text) for name, text in form.env.items()],
            *[("args", index, text) for index, text in enumerate(args)],
        ]
        for key, part, text in texts if self.foreign else ():
            if "${" in text:
                node.at(key, part).warning("variables are not expanded here")
        said = node.at("sandbox").value
        network = form.sandbox.network if isinstance(form.sandbox, SandboxForm) else None
        if isinstance(form, BuiltinForm) and isinstance(network, NetworkForm) and network.services:
            node.at("sandbox", "network", "services").error("our own shell reaches no services")
        return {
            "env": form.env,
            # As it was written: `sandbox` reads it.
            "sandbox": said if isinstance(said, dict | bool) else None,
            "allowed_domains": _domains(
                network.allowed_domains
                if isinstance(network, NetworkForm)
                else form.allowed_domains
                if isinstance(form, ProcessForm)
                else ()
            ),
        }

    def _directory(self, node: DocumentNode, text: Maybe[str]) -> str | None:
        if not text or text == WORKSPACE:
            return text or None
        path = rooted(text, self.home)
        if path is None:
            node.error("must be an absolute path, or begin with ~/")
        return None if path is None else str(path)


def _common(name: str, form: BaseEntryForm, usual: str | None = None) -> dict[str, Any]:
    """Return the fields that every kind of server has."""
    fields: dict[str, Any] = {
        "name": name,
        "annotations": form.annotations or usual or name,
        "description": form.description,
        "ask": asked(form.ask),
        "pins": form.pins or None,
        "results": form.results,
        "tools": ShownTools(allow=form.tools) if isinstance(form.tools, tuple) else form.tools,
    }
    if isinstance(form, EntryForm):
        fields |= {
            "stateful": form.stateful,
            "ask_about_secrets": form.arguments.ask_about_secrets,
        }
    return fields


def _place_of_hosts(spec: ServerSpec) -> str:
    return "sandbox.network.allowedDomains" if spec.sandbox is not False else "allowedDomains"


def _check_name(node: DocumentNode, name: str) -> None:
    if name == _RESERVED:
        node.error(f"{shown(name)} is reserved")
    elif not name or name != name.strip() or len(name) > _MAX_NAME:
        node.error(f"a name has 1 to {_MAX_NAME} characters, no blanks around it")
    elif "/" in name or not name.isprintable():
        node.error("a name must not hold control characters or /")
    elif not _COMMON_NAME.issuperset(name):
        node.warning("some clients refuse names beyond letters, digits, _ and -")


def _domains(said: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([domain.lower() for domain in said])


# --- server choice


SERVERS_NAME: Final = "mcp-servers.json"


class ServerChoice(Struct, frozen=True):
    """The servers to run."""

    servers: tuple[ServerSpec, ...]
    file: Path | None = None
    """The servers file, if the servers were read from one."""
    names: tuple[str, ...] = ()
    """All configured names, including servers that do not run."""


def choose_servers(
    layers: Layers, state_dir: Path, report: Report, workspace: RealPath | None = None
) -> ServerChoice:
    """Return the servers after `serverFilter`, each with its own credentials.

    Environment over `mcpServers` or `mcpServersFile` over `~/.ironcurtain/mcp-servers.json`.
    """
    # An unreadable file may name other servers than the default file.
    unread = layers.file_is_unread and "mcpServers" not in layers.environment.nodes
    found = ServerChoice(()) if unread else _find(layers, state_dir, report)
    names = [spec.name for spec in found.servers]
    wanted = layers.read("serverFilter", lambda node: _wanted(node, names), None)
    credentials = layers.read("serverCredentials", lambda node: _credentials(node, names), {})
    if layers.config_file is not None and "serverCredentials" in layers.file.nodes:
        _warn_if_others_can_read(layers.config_file, layers.file.nodes["serverCredentials"])
    servers = [
        replace(_placed(spec, workspace, report), credentials=credentials.get(spec.name, {}))
        for spec in found.servers
        if wanted is None or spec.name in wanted
    ]
    return ServerChoice(tuple(servers), found.file, tuple(names))


def _placed(spec: ServerSpec, workspace: RealPath | None, report: Report) -> ServerSpec:
    """Put a server into the workspace if its entry says so."""
    if spec.cwd != WORKSPACE:
        return spec
    if workspace is None:
        source = f"server {shown(spec.name)}"
        report.warning(source, (), f"its cwd is {WORKSPACE}, and there is no workspace")
    return replace(spec, cwd=None if workspace is None else str(workspace))


def _find(layers: Layers, state_dir: Path, report: Report) -> ServerChoice:
    home = layers.home
    variable = layers.environment.nodes.get("mcpServers")
    inline = layers.file.nodes.get("mcpServers")
    named = layers.file.nodes.get("mcpServersFile")
    if inline is not None and named is not None:
        named.error("must not stand beside mcpServers")
    if variable is not None:
        return ServerChoice(parse_servers(variable, home))
    if inline is not None:
        return ServerChoice(ServersReader(home, foreign=True).servers(inline))
    file = layers.path("mcpServersFile")
    if file is None:
        file = state_dir / SERVERS_NAME
        if not is_there(file):
            # `wiring.readiness` reports this once, wherever somebody has to know.
            return ServerChoice(())
    return ServerChoice(read_servers_file(file, home, report), file)


def _wanted(node: DocumentNode, names: list[str]) -> frozenset[str]:
    for item in node.items():
        name = item.name()
        if name and name not in names:
            item.error(f"there is no server {shown(name)}", nearest(name, names))
    return frozenset(node.texts())


def _credentials(node: DocumentNode, names: list[str]) -> Mapping[str, Mapping[str, str]]:
    found = fill(node, dict[str, dict[VariableName, NameText]])
    for server in found:
        if server not in names:
            message = f"there is no server {shown(server)}: not used"
            node.at(server).warning(message, nearest(server, names))
    return found


def _warn_if_others_can_read(path: Path, node: DocumentNode) -> None:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        node.warning("others can read these secrets: chmod 600 the file")


def find_workspace(layers: Layers) -> RealPath | None:
    """Return the workspace, or None if there is none, or it is invalid and reported."""
    node = layers.node("allowedDirectory")
    path = None if node is None else layers.as_path(node)
    if node is None or path is None:
        return None
    if not os.path.isdir(path):  # noqa: PTH112  the other one raises where we may not look
        node.error(f"{shown(str(path))} is not a directory: create it, or name another")
        return None
    return _checked(path, layers.home, node)


def _checked(path: Path, home_path: Path, node: DocumentNode) -> RealPath | None:
    workspace, home = real(path), real(home_path)
    if not workspace.parts:
        node.error("must not be the root of the file system")
        return None
    if workspace == home:
        node.error("must not be the home directory: name a directory inside it")
        return None
    if home.is_within(workspace):
        node.warning("holds the home directory: the agent may change nearly all of it")
    return workspace


def container_workspace(layers: Layers) -> str | None:
    """Return the agent's own path for the workspace: absolute, without a slash at its end."""
    node = layers.node("containerWorkspaceDir")
    if node is None:
        return None
    text = node.name()
    trimmed = text.rstrip("/")
    if not text.startswith("/") or not trimmed:
        node.error("must be an absolute path other than /")
        return None
    if layers.node("allowedDirectory") is None:
        node.warning("has no use without a workspace (allowedDirectory)")
    return trimmed
