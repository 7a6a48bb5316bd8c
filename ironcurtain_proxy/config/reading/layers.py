"""Where a setting comes from: the environment, else the configuration file, else the default.

The variables have the names of the original program. An empty one counts as unset: many clients
write all variables they know. Paths are the operator's, as written; the agent's are resolved in
`facts`, which trusts nothing. The keys, meanings and defaults are in `config.settings`.
"""

import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from ironcurtain_proxy.config.reading.document import DocumentNode, Report, shown
from ironcurtain_proxy.config.reading.reading import is_there, parse, read_document
from ironcurtain_proxy.model.values import Json, RealPath, lazy

# --- environment


SERVERS_VARIABLE: Final = "MCP_SERVERS_CONFIG"
API_KEY_VARIABLE: Final = "AUTO_APPROVE_API_KEY"
CONFIG_VARIABLE: Final = "IRONCURTAIN_CONFIG"
SESSION_VARIABLE: Final = "IRONCURTAIN_SESSION_ID"
PRINCIPAL_VARIABLE: Final = "IRONCURTAIN_PRINCIPAL"
"""The name of the token that the agent over HTTP has; `serve --http` sets it."""
ISOLATION_VARIABLE: Final = "IRONCURTAIN_ISOLATION"

SECRET_VARIABLES: Final = (SERVERS_VARIABLE, "SERVER_CREDENTIALS", API_KEY_VARIABLE)
"""Variables that are removed from the environment once read, so that code in this process, or a
process that inherits the environment by mistake, does not find them."""

_Parser: TypeAlias = Callable[[str], Json]

_TRUE: Final = frozenset({"true", "1", "on", "yes"})
_FALSE: Final = frozenset({"false", "0", "off", "no"})
_NUMBER: Final = lazy(r"[0-9]{1,15}(\.[0-9]{1,9})?")


def _number(text: str) -> Json:
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) is None:
        return text  # the reader says that it is text
    return float(stripped) if "." in stripped else int(stripped)


def _switch(text: str) -> Json:
    word = text.strip().lower()
    return word in _TRUE if word in _TRUE | _FALSE else text


def _exactly_true(text: str) -> Json:
    """Return whether the text is exactly `true`."""
    return text == "true"


def _names(text: str) -> Json:
    return [name.strip() for name in text.split(",") if name.strip()]


_PARSERS: Final[Mapping[str, _Parser | None]] = MappingProxyType(
    {
        "text": str,
        "names": _names,
        "JSON": None,
        "number": _number,
        "switch": _switch,
        "true": _exactly_true,
    }
)
_VARIABLES: Final[Mapping[str, tuple[str, _Parser | None]]] = MappingProxyType(
    {
        variable: (key, _PARSERS[kind])
        for variable, key, kind in map(
            str.split, Path(__file__).with_name("variables.txt").read_text("utf-8").splitlines()
        )
    }
)
"""The key of the configuration file for each variable, and the parser of its text, or None if it is
JSON."""

SETTING_VARIABLES: Final = frozenset({*_VARIABLES, CONFIG_VARIABLE, SESSION_VARIABLE})
"""All variables that say something about the settings."""


CLIENT_VARIABLES: Final = "IRONCURTAIN_SECRET_"
"""The prefix of the variables from which `SERVER_CREDENTIALS` may take secrets."""


def _filled_in(credentials: dict[str, Json], given: Mapping[str, str], report: Report) -> Json:
    """Return the credentials with `{"from": VARIABLE}` replaced by what the variable holds.

    A client fills its own variables into a text: inside JSON a quote would end the text early.
    """
    found: dict[str, Json] = {}
    for server, entry in credentials.items():
        if not isinstance(entry, dict):
            found[server] = entry
            continue
        secrets = {**entry}
        for name, value in entry.items():
            variable = value.get("from") if isinstance(value, dict) else None
            if not isinstance(variable, str):
                continue
            if variable not in given:
                why = f"{shown(variable)} is not set, or does not begin with {CLIENT_VARIABLES}"
                report.error("SERVER_CREDENTIALS", (server, name), why)
            secrets[name] = given.get(variable, "")
        found[server] = secrets
    return found


class Environment(Struct, frozen=True):
    """The settings found in the environment."""

    nodes: Mapping[str, DocumentNode]
    """The values by key of the configuration file."""
    secrets: Mapping[str, str]
    """The secrets by variable."""


def read_environment(environ: MutableMapping[str, str], report: Report) -> Environment:
    """Read all variables. Secrets are removed from the mapping afterwards, even on errors."""
    secrets = {name: environ.pop(name) for name in SECRET_VARIABLES if name in environ}
    given = {name: environ.pop(name) for name in [*environ] if name.startswith(CLIENT_VARIABLES)}
    nodes: dict[str, DocumentNode] = {}
    for variable, (key, parser) in _VARIABLES.items():
        text = secrets.get(variable) or environ.get(variable) or ""
        if not text.strip():
            continue
        before = len(report.problems)
        raw = text.encode("utf-8", "surrogateescape")
        value = parse(raw, variable, report) if parser is None else parser(text)
        if variable == "SERVER_CREDENTIALS" and isinstance(value, dict):
            value = _filled_in(value, given, report)
        if len(report.problems) == before:
            nodes[key] = DocumentNode(value, variable, report)
    kept = {API_KEY_VARIABLE: secrets[API_KEY_VARIABLE]} if API_KEY_VARIABLE in secrets else {}
    return Environment(nodes, kept)


# --- operator paths


STATE_DIRECTORY: Final = ".ironcurtain"
"""The proxy's directory in the home directory."""


def expand_home(text: str, home: Path) -> str:
    """Replace `~` and `~/x` by the home directory; other paths are returned unchanged."""
    if text == "~":
        return str(home)
    return f"{home}/{text[2:]}" if text.startswith("~/") else text


def working_directory() -> Path:
    """Return the proxy's working directory; `/` if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def absolute(text: str, home: Path, base: Path) -> Path:
    """Return a path with `~` and `..` resolved, relative ones against `base`.

    Links are not followed.

    Raises:
        ValueError: it is empty, holds a NUL, or says `~someone`.
    """
    if not text or "\0" in text:
        raise ValueError("is not a path")
    if text.startswith("~") and text != "~" and not text.startswith("~/"):
        raise ValueError("must not begin with ~ and a name: write the directory itself")
    return Path(os.path.normpath(base / expand_home(text, home)))


def rooted(text: str, home: Path) -> Path | None:
    """Return the absolute path of a text; None unless it begins with `/` or `~/`."""
    if not text.startswith(("/", "~")):
        return None
    try:
        return absolute(text, home, Path("/"))
    except ValueError:
        return None


def real(path: Path | str) -> RealPath:
    """Return the target of an absolute path, every link followed; missing components are kept."""
    return RealPath.from_text(os.path.realpath(path))


def as_named(path: Path) -> RealPath:
    """Return the path with links followed in its parent only: the link instead of its target."""
    return RealPath.from_text(f"{os.path.realpath(path.parent)}/{path.name}")


# --- layers


CONFIG_NAME: Final = "config.json"

T = TypeVar("T")
D = TypeVar("D")


class Layer(Struct, frozen=True):
    """One source of settings."""

    nodes: Mapping[str, DocumentNode]
    """The values by key; `section.key` for nested keys. A section is also present as a whole."""
    base: Path
    """The directory that relative paths are relative to."""


class Layers(Struct, frozen=True):
    """All sources, the environment first."""

    environment: Layer
    file: Layer
    config_file: Path | None
    home: Path
    file_is_unread: bool = False
    """Whether the configuration file exists and cannot be read, so that its settings are unknown.
    """

    def read(self, key: str, read: Callable[[DocumentNode], T], default: D) -> T | D:
        """Return a setting, or its default.

        Both sources are read, so that mistakes in both are reported.
        """
        found = [
            read(layer.nodes[key]) for layer in (self.environment, self.file) if key in layer.nodes
        ]
        return found[0] if found else default

    def path(self, key: str) -> Path | None:
        """Return a setting that names a path, absolute, or None."""
        return self.read(key, self.as_path, None)

    def paths(self, key: str) -> tuple[Path, ...]:
        """Return a setting with a list of paths."""
        found = self.read(key, lambda node: node.each(self.as_path), ())
        return tuple([path for path in found if path is not None])

    def as_path(self, node: DocumentNode) -> Path | None:
        """Return a path as written in either source.

        A relative path is relative to the file that holds it; in the environment, to the proxy's
        working directory.
        """
        text = node.name()
        in_file = self.config_file is not None and node.source == str(self.config_file)
        base = self.file.base if in_file else self.environment.base
        if not text:
            return None
        try:
            return absolute(text, self.home, base)
        except ValueError as error:
            node.error(str(error))
            return None

    def node(self, key: str) -> DocumentNode | None:
        """Return the value of a setting in the source that wins, or None."""
        return self.environment.nodes.get(key) or self.file.nodes.get(key)


def read_layers(
    environ: Mapping[str, str],
    environment: Environment,
    config: Path | None,
    home: Path,
    report: Report,
    keys: Iterable[str],
) -> Layers:
    """Read the configuration file, if it exists, and put the environment over it.

    Args:
        environ: for the path of the file.
        environment: the settings found there.
        config: the file that the command line names, or None if it names none.
        home: the home directory.
        report: gets the mistakes.
        keys: all keys of the file, as `section.key`.
    """
    file = _find(environ, config, home)
    read = None if file is None else read_document(file, report)
    nodes: dict[str, DocumentNode] = {}
    if read is not None:
        _gather(read[1], "", keys, nodes)
    return Layers(
        environment=Layer(environment.nodes, working_directory()),
        file=Layer(nodes, home if file is None else file.parent),
        config_file=file,
        home=home,
        file_is_unread=file is not None and read is None,
    )


def _find(environ: Mapping[str, str], config: Path | None, home: Path) -> Path | None:
    """Find the file: by command line, else environment, else the default if it exists."""
    said = str(config) if config is not None else environ.get(CONFIG_VARIABLE, "").strip()
    if said:
        return Path(os.path.normpath(working_directory() / expand_home(said, home)))
    usual = home / STATE_DIRECTORY / CONFIG_NAME
    return usual if is_there(usual) else None


def _gather(
    node: DocumentNode, prefix: str, keys: Iterable[str], nodes: dict[str, DocumentNode]
) -> None:
    """Collect the values of a section and of nested sections; the file as a whole has no prefix."""
    parts = [key.removeprefix(prefix).partition(".") for key in keys if key.startswith(prefix)]
    sections = {name for name, dot, _ in parts if dot}
    members = node.object(sorted({name for name, _, _ in parts}))
    for key in members:
        name = prefix + key
        nodes[name] = members.required(key)
        if key in sections:
            _gather(nodes[name], f"{name}.", keys, nodes)
