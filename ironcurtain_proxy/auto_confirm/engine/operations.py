"""Tables of the operations that the engine knows, and of the tools that do them.

The words stand in `engine_tables.toml`. A tool's name comes from its server, never from the agent.
The name of an unknown server's tool can only raise the risk: `delete` in a name counts, `test` does
not.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct, convert

from ironcurtain_proxy.auto_confirm.engine_tables import TABLES
from ironcurtain_proxy.model.annotation import ArgumentRole

OperationKind: TypeAlias = Literal[
    "deploy", "git-force-push", "shell-dd-mount", "delete", "shell-rm", "unknown", "git-push",
    "database", "network", "install", "git-commit", "edit", "shell-safe", "test", "git-pull",
    "git-fetch", "read", "list",
]  # fmt: skip
"""The operations of calls, the most dangerous first. `unknown`: not known to the engine."""


class _Words(Struct, frozen=True, forbid_unknown_fields=True):
    reading: str
    writing: str
    destructive: str
    production: str
    rewriting_switches: str
    telling_arguments: str


class _Tables(Struct, frozen=True):
    commands: dict[str, OperationKind]
    tools: dict[str, dict[OperationKind, str]]
    own_data: dict[str, str]
    roles: dict[OperationKind | Literal["none"], str]
    covered: dict[OperationKind, str]
    raising: dict[OperationKind, str]
    words: _Words


_TABLES: Final = convert(TABLES, _Tables)


def _by_word(table: Mapping[OperationKind, str]) -> dict[str, OperationKind]:
    return {word: operation for operation, text in table.items() for word in text.split()}


def _roles(text: str) -> frozenset[ArgumentRole]:
    return convert(text.split(), frozenset[ArgumentRole])


COMMAND_OPERATIONS: Final[Mapping[str, OperationKind]] = _TABLES.commands
"""Any other word is `unknown`."""
KNOWN_TOOLS: Final[Mapping[str, Mapping[str, OperationKind]]] = {
    server: _by_word(tools) for server, tools in _TABLES.tools.items()
}
"""The operations of known tools, by the server's name in the annotations and the tool's name."""
OWN_DATA: Final = frozenset(
    (server, tool) for server, tools in _TABLES.own_data.items() for tool in tools.split()
)
"""Tools that read what the agent itself was told or wrote, and name no path."""
ROLE_OPERATIONS: Final[Mapping[ArgumentRole, OperationKind | None]] = {
    role: None if operation == "none" else operation
    for operation, text in _TABLES.roles.items()
    for role in _roles(text)
}
"""The operation that an argument role adds, unless the call's operation covers the role."""
COVERED: Final[Mapping[OperationKind, frozenset[ArgumentRole]]] = {
    operation: _roles(text) for operation, text in _TABLES.covered.items()
}
"""Roles that belong to an operation."""
RAISING_WORDS: Final[Mapping[str, OperationKind]] = _by_word(_TABLES.raising)
"""Words in a tool's name, of any server, that say what else it does."""

READING_WORDS: Final = frozenset(_TABLES.words.reading.split())
WRITING_WORDS: Final = frozenset(_TABLES.words.writing.split())
DESTRUCTIVE_WORDS: Final = frozenset(_TABLES.words.destructive.split())
PRODUCTION_WORDS: Final = frozenset(_TABLES.words.production.split())
REWRITING_SWITCHES: Final = frozenset(_TABLES.words.rewriting_switches.split())
TELLING_ARGUMENTS: Final = frozenset(_TABLES.words.telling_arguments.split())
