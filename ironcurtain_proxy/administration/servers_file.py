"""`mcp-servers.json`, or a client's own `{"mcpServers": {...}}`: which servers stand behind us.

In our own form an unknown key is refused. In a client's form it is a warning: clients have keys of
their own, and the file is theirs. Arguments are passed on as they stand: the original put the
workspace in the place of the last one, which breaks every file not written for it (G34). Servers
that want to know the workspace ask with `roots/list`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from ironcurtain_proxy.administration.operator_paths import rooted
from ironcurtain_proxy.administration.problems import Report, nearest, shown
from ironcurtain_proxy.administration.reading import read_document
from ironcurtain_proxy.administration.recognition import recognised
from ironcurtain_proxy.administration.shapes import Given, Place, Shape, read_shape
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec

_RESERVED: Final = "proxy"
_MAX_NAME: Final = 100
_COMMON_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]


class _FilesystemShape(Shape):
    allow_write: list[str] = Field(default_factory=list)
    allow_read: list[str] = Field(default_factory=list)
    deny_read: list[str] = Field(default_factory=list)
    deny_write: list[str] = Field(default_factory=list)


class _NetworkShape(Shape):
    allowed_domains: list[str] = Field(default_factory=list)
    denied_domains: list[str] = Field(default_factory=list)


def _form(value: object) -> str:
    return "switch" if isinstance(value, bool) else "object"


_NetworkOrFalse: TypeAlias = Annotated[
    Annotated[Literal[False], Tag("switch")] | Annotated[_NetworkShape, Tag("object")],
    Discriminator(_form),
]


class _SandboxShape(Shape):
    filesystem: Given[_FilesystemShape] = None
    network: Given[_NetworkOrFalse] = None


_SandboxOrSwitch: TypeAlias = Annotated[
    Annotated[bool, Tag("switch")] | Annotated[_SandboxShape, Tag("object")],
    Discriminator(_form),
]


class _ServerShape(Shape):
    command: _NonEmpty
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    cwd: Given[str] = None
    description: str = ""
    sandbox: Given[_SandboxOrSwitch] = None
    annotations: Given[_NonEmpty] = None
    type: Literal["stdio"] = "stdio"


_KNOWN_KEYS: Final = frozenset(_ServerShape.model_fields)


def read_servers_file(path: Path, home: Path, report: Report) -> tuple[ServerSpec, ...]:
    """The servers of a file; whatever is wrong is in the report."""
    read = read_document(path, report)
    return () if read is None else parse_servers(read[1], path, home, report)


def parse_servers(
    document: Json, source: object, home: Path, report: Report
) -> tuple[ServerSpec, ...]:
    """The servers of a document in either form; whatever is wrong is in the report."""
    if not isinstance(document, dict):
        report.error(source, (), "must be an object of servers by name")
        return ()
    if "mcpServers" not in document:
        return ServersReader(source, home, report).servers(document)
    for key in document:
        if key != "mcpServers" and not key.startswith("_"):
            report.warning(source, (key,), "unknown key, ignored")
    reader = ServersReader(source, home, report, foreign=True, at=("mcpServers",))
    return reader.servers(document["mcpServers"])


@dataclass(frozen=True, slots=True)
class ServersReader:
    """Reads the entries of one document."""

    source: object
    home: Path
    report: Report
    foreign: bool = False
    """Whether the file may be a client's own."""
    at: Place = ()
    """Where in the document the servers stand."""

    def servers(self, entries: Json) -> tuple[ServerSpec, ...]:
        """The servers, in file order."""
        if not isinstance(entries, dict):
            self.report.error(self.source, self.at, "must be an object of servers by name")
            return ()
        specs: list[ServerSpec] = []
        for name, entry in entries.items():
            if not name.startswith("_"):
                spec = self._server(name, entry)
                if spec is not None:
                    specs.append(spec)
        self._refuse_ambiguous_names([spec.name for spec in specs])
        return tuple(specs)

    def _server(self, name: str, entry: Json) -> ServerSpec | None:
        place = (*self.at, name)
        self._check_name(name, place)
        if isinstance(entry, dict):
            if self._is_not_ours(entry, place):
                return None
            entry = self._without_foreign_keys(entry, place)
        shape = read_shape(_ServerShape, entry, self.source, self.report, place)
        if shape is None:
            return None
        self._check_process(shape, place)
        if shape.annotations is not None:
            self._check_name(shape.annotations, (*place, "annotations"))
        return ServerSpec(
            name=name,
            annotations=shape.annotations or recognised(shape.command, shape.args) or name,
            command=shape.command,
            args=tuple(shape.args),
            env=dict(shape.env),
            cwd=self._directory(shape.cwd, (*place, "cwd")),
            sandbox=_raw_sandbox(entry),
            allowed_domains=_allowed_domains(shape),
            description=shape.description,
        )

    def _is_not_ours(self, entry: Mapping[str, Json], place: Place) -> bool:
        if entry.get("disabled") is True and self.foreign:
            self.report.warning(self.source, (*place, "disabled"), "not started")
            return True
        kind = entry.get("type", "stdio")
        if "command" not in entry and ("url" in entry or kind in {"http", "sse"}):
            self.report.warning(self.source, place, "is reached over the network: left out")
            return True
        return False

    def _without_foreign_keys(self, entry: dict[str, Json], place: Place) -> dict[str, Json]:
        if not self.foreign:
            return entry
        for key in entry:
            if key not in _KNOWN_KEYS and not key.startswith("_"):
                suggestion = nearest(key, _KNOWN_KEYS)
                self.report.warning(self.source, (*place, key), "unknown key, ignored", suggestion)
        return {key: value for key, value in entry.items() if key in _KNOWN_KEYS}

    def _check_name(self, name: str, place: Place) -> None:
        if name == _RESERVED:
            self.report.error(self.source, place, f"{shown(name)} is reserved")
        elif not name or name != name.strip() or len(name) > _MAX_NAME:
            self.report.error(
                self.source, place, f"a name has 1 to {_MAX_NAME} characters, no blanks around it"
            )
        elif "/" in name or not name.isprintable():
            self.report.error(self.source, place, "a name must not hold control characters or /")
        elif not _COMMON_NAME.issuperset(name):
            self.report.warning(
                self.source,
                place,
                "some clients refuse tools unless names are letters, digits, _ and -",
            )

    def _check_process(self, shape: _ServerShape, place: Place) -> None:
        texts: list[tuple[Place, str]] = [((*place, "command"), shape.command)]
        texts += [((*place, "args", index), text) for index, text in enumerate(shape.args)]
        texts += [((*place, "env", name), text) for name, text in shape.env.items()]
        for where, text in texts:
            if "\0" in text:
                self.report.error(self.source, where, "must not hold NUL")
            elif "${" in text and self.foreign:
                self.report.warning(self.source, where, "variables are not expanded here")
        for name in shape.env:
            check_variable_name(name, self.source, (*place, "env", name), self.report)

    def _directory(self, text: str | None, place: Place) -> str | None:
        if text is None:
            return None
        path = rooted(text, self.home)
        if path is None:
            self.report.error(self.source, place, "must be an absolute path, or begin with ~/")
        return None if path is None else str(path)

    def _refuse_ambiguous_names(self, names: list[str]) -> None:
        for shorter, longer in permutations(names, 2):
            # `a__b__c` could be tool `b__c` of server `a`, or tool `c` of server `a__b` (G32).
            if (longer + "__").startswith(shorter + "__"):
                self.report.error(
                    self.source,
                    (*self.at, longer),
                    f"its tools could be taken for those of {shown(shorter)}: rename one",
                )


def check_variable_name(name: str, source: object, place: Place, report: Report) -> None:
    """Refuse what cannot be the name of an environment variable."""
    if not name or "=" in name or "\0" in name:
        report.error(source, place, "is not a name for an environment variable")


def _raw_sandbox(entry: Json) -> Mapping[str, Json] | bool | None:
    value = entry.get("sandbox") if isinstance(entry, dict) else None
    return value if isinstance(value, dict | bool) else None


def _allowed_domains(shape: _ServerShape) -> tuple[str, ...]:
    sandbox = shape.sandbox
    network = sandbox.network if isinstance(sandbox, _SandboxShape) else None
    domains = network.allowed_domains if isinstance(network, _NetworkShape) else []
    return tuple([domain.lower() for domain in domains])
