"""`mcp-servers.json`, or a client's own `{"mcpServers": {...}}`: the servers behind the proxy.

In our own form an unknown key is refused. In a client's form it is a warning: clients have keys of
their own, and the file is theirs. Arguments are passed on as they stand: the original put the
workspace in the place of the last one, which breaks every file not written for it. Servers
that want to know the workspace ask with `roots/list`.
"""

import sys
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any, Final  # noqa: TID251  the values of fields of all types

from msgspec import Struct

from ironcurtain_proxy.config.reading.declared import one_of
from ironcurtain_proxy.config.reading.document import Members, Spot
from ironcurtain_proxy.config.reading.operator_paths import rooted
from ironcurtain_proxy.config.reading.problems import Report, shown
from ironcurtain_proxy.config.reading.reading import read_document
from ironcurtain_proxy.config.servers.recognition import recognised
from ironcurtain_proxy.config.servers.remote_entry import REMOTE_KEYS, is_remote, read_remote
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.pinning import PIN_MODES
from ironcurtain_proxy.model.policy import ASK_KINDS, AskKind
from ironcurtain_proxy.model.server import BuiltIn, ResultRules, ServerSpec
from ironcurtain_proxy.model.vocabulary import word_list

_RESERVED: Final = "proxy"
_MAX_NAME: Final = 100
_COMMON_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")

WORKSPACE: Final = "@workspace"
"""The value of a server's `cwd` that stands for the session's workspace."""
SERVER_KEYS: Final = word_list(
    """
    command args env cwd description sandbox annotations stateful type ask arguments pins results
    """
)
BUILTIN_KEYS: Final = word_list("builtin env description sandbox annotations ask pins results")
_BUILTIN: Final[tuple[BuiltIn, ...]] = ("shell",)
OWN_SHELL: Final = "own-shell"
"""The name of our own shell in policy and annotations."""
_SHELL_MODULE: Final = "ironcurtain_proxy.own_shell.program"
_FILESYSTEM_KEYS: Final = ("allowWrite", "allowRead", "denyRead", "denyWrite", "private")
_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "processes": (16, 4_194_304),
    "openFiles": (64, 1_048_576),
    "memoryMb": (64, 1 << 30),
    "freeDiskMb": (0, 1 << 30),
}
"""The least and the most of each limit: less starts no server, more no machine has."""
_NETWORK_KEYS: Final = ("allowedDomains", "deniedDomains")


def read_servers_file(path: Path, home: Path, report: Report) -> tuple[ServerSpec, ...]:
    """The servers of a file; mistakes are in the report."""
    read = read_document(path, report)
    return () if read is None else parse_servers(read[1], home)


def parse_servers(root: Spot, home: Path) -> tuple[ServerSpec, ...]:
    """The servers of a document in either form; mistakes are in the report."""
    if isinstance(root.value, dict) and "mcpServers" in root.value:
        wrapper = root.object(("mcpServers",), foreign=True)
        return ServersReader(home, foreign=True).servers(wrapper.required("mcpServers"))
    return ServersReader(home).servers(root)


class ServersReader(Struct, frozen=True):
    """Reads the entries of one document."""

    home: Path
    foreign: bool = False
    """Whether the entries may have unknown keys of a client."""

    def servers(self, spot: Spot) -> tuple[ServerSpec, ...]:
        """The servers, in file order."""
        entries = {n: entry for n, entry in spot.members().items() if not n.startswith("_")}
        for shorter, longer in permutations(entries, 2):
            # `a__b__c` could be tool `b__c` of server `a`, or tool `c` of server `a__b`.
            if (longer + "__").startswith(shorter + "__"):
                entries[longer].error(
                    f"its tools could be taken for those of {shown(shorter)}: rename one"
                )
        specs = [self._server(name, entry) for name, entry in entries.items()]
        return tuple([spec for spec in specs if spec is not None])

    def _server(self, name: str, spot: Spot) -> ServerSpec | None:
        _check_name(spot, name)
        if self._is_left_out(spot):
            return None
        if is_remote(spot.value):
            return self._remote(name, spot)
        if isinstance(spot.value, dict) and "builtin" in spot.value:
            return self._builtin(name, spot)
        members = spot.object(SERVER_KEYS, foreign=self.foreign)
        if "type" in members:
            members.required("type").word(("stdio",))
        command = members.required("command").name()
        args = members.read("args", lambda spot: spot.each(self._process_text), ())
        sandbox = members.get("sandbox")
        return ServerSpec(
            name=name,
            annotations=self._annotations(members) or recognised(command, args) or name,
            command=command,
            args=args,
            env=self._environment(members),
            cwd=self._directory(members.get("cwd")),
            sandbox=None if sandbox is None else _sandbox(sandbox),
            allowed_domains=_allowed_domains(sandbox),
            **_common(members),
        )

    def _is_left_out(self, spot: Spot) -> bool:
        entry = spot.value
        if not isinstance(entry, dict):
            return False
        if self.foreign and entry.get("disabled") is True:
            spot.warning("is disabled there: not started")
            return True
        return False

    def _builtin(self, name: str, spot: Spot) -> ServerSpec:
        """Read the entry of a server of our own, which is started by the present interpreter."""
        members = spot.object(BUILTIN_KEYS, foreign=self.foreign)
        builtin = members.required("builtin").word(_BUILTIN)
        sandbox = members.get("sandbox")
        return ServerSpec(
            name=name,
            annotations=self._annotations(members) or OWN_SHELL,
            command=sys.executable,
            args=("-I", "-m", _SHELL_MODULE),
            env=self._environment(members),
            cwd=WORKSPACE,
            builtin=builtin,
            sandbox=None if sandbox is None else _sandbox(sandbox),
            allowed_domains=_allowed_domains(sandbox),
            **_common(members),
        )

    def _remote(self, name: str, spot: Spot) -> ServerSpec:
        members = spot.object(REMOTE_KEYS, foreign=self.foreign)
        return ServerSpec(
            name=name,
            annotations=self._annotations(members) or name,
            command="",
            sandbox=False,
            allowed_domains=members.read("allowedDomains", _domains, ()),
            remote=read_remote(members),
            **_common(members),
        )

    def _process_text(self, spot: Spot) -> str:
        text = spot.text()
        if "\0" in text:
            spot.error("must not hold NUL")
        elif "${" in text and self.foreign:
            spot.warning("variables are not expanded here")
        return text

    def _environment(self, members: Members) -> Mapping[str, str]:
        spots = members.read("env", Spot.members, {})
        for name, spot in spots.items():
            check_variable_name(spot, name)
        return {name: self._process_text(spot) for name, spot in spots.items()}

    def _annotations(self, members: Members) -> str:
        spot = members.get("annotations")
        if spot is None:
            return ""
        name = spot.name()
        _check_name(spot, name)
        return name

    def _directory(self, spot: Spot | None) -> str | None:
        if spot is None:
            return None
        if spot.value == WORKSPACE:
            return WORKSPACE
        path = rooted(spot.name(), self.home)
        if path is None:
            spot.error("must be an absolute path, or begin with ~/")
        return None if path is None else str(path)


def _common(members: Members) -> dict[str, Any]:
    """The fields that every kind of server has."""
    return {
        "stateful": members.read("stateful", Spot.switch, default=False),
        "description": members.read("description", Spot.text, ""),
        "ask": members.read("ask", asking, ()),
        "ask_about_secrets": members.read("arguments", _asks_about_secrets, default=False),
        "pins": members.read("pins", one_of(PIN_MODES), None),
        "results": members.read("results", _results, ResultRules()),
    }


def asking(spot: Spot) -> tuple[AskKind, ...]:
    """The questions that a server may ask: one word, or a list of words; `none` allows none."""
    if spot.value == "none":
        return ()
    if isinstance(spot.value, list):
        return tuple(spot.each(lambda one: one.word(ASK_KINDS)))
    return (spot.word(ASK_KINDS),)


def _asks_about_secrets(spot: Spot) -> bool:
    return spot.object(("askAboutSecrets",)).read("askAboutSecrets", Spot.switch, default=False)


def _results(spot: Spot) -> ResultRules:
    members = spot.object(("clean", "redactSecrets"))
    return ResultRules(
        clean=members.read("clean", Spot.switch, default=False),
        redact_secrets=members.read("redactSecrets", Spot.switch, default=False),
    )


def check_variable_name(spot: Spot, name: str) -> None:
    """Refuse a text that cannot be the name of an environment variable."""
    if not name or "=" in name or "\0" in name:
        spot.error("is not a name for an environment variable")


def _check_name(spot: Spot, name: str) -> None:
    if name == _RESERVED:
        spot.error(f"{shown(name)} is reserved")
    elif not name or name != name.strip() or len(name) > _MAX_NAME:
        spot.error(f"a name has 1 to {_MAX_NAME} characters, no blanks around it")
    elif "/" in name or not name.isprintable():
        spot.error("a name must not hold control characters or /")
    elif not _COMMON_NAME.issuperset(name):
        spot.warning("some clients refuse names beyond letters, digits, _ and -")


def _sandbox(spot: Spot) -> Mapping[str, Json] | bool:
    """The value as written, with its shape checked; `sandbox` reads it."""
    if isinstance(spot.value, bool):
        return spot.value
    members = spot.object(("filesystem", "network", "limits"))
    limits = members.get("limits")
    if limits is not None:
        said = limits.object(tuple(_LIMITS))
        for key in said:
            said.required(key).whole(*_LIMITS[key])
    files = members.get("filesystem")
    if files is not None:
        lists = files.object(_FILESYSTEM_KEYS)
        _check_lists(lists)
        lists.read("private", _check_private, None)
    network = members.get("network")
    if network is not None and network.value is not False:
        _check_lists(network.object(_NETWORK_KEYS))
    return spot.value if isinstance(spot.value, dict) else {}


def _check_lists(members: Members) -> None:
    for key in members:
        members.required(key).each(Spot.name)


def _check_private(spot: Spot) -> None:
    for one, name in zip(spot.each(lambda each: each), spot.each(Spot.name), strict=True):
        home, _, below = name.partition("/")
        if home != "~" or not {"", ".", ".."}.isdisjoint(below.split("/")):
            one.error("must be a folder of the home directory, such as ~/.tool")


def _domains(spot: Spot) -> tuple[str, ...]:
    return tuple([domain.lower() for domain in spot.each(Spot.name)])


def _allowed_domains(spot: Spot | None) -> tuple[str, ...]:
    sandbox = None if spot is None else spot.value
    network = sandbox.get("network") if isinstance(sandbox, dict) else None
    domains = network.get("allowedDomains") if isinstance(network, dict) else None
    found = domains if isinstance(domains, list) else []
    return tuple([domain.lower() for domain in found if isinstance(domain, str)])
