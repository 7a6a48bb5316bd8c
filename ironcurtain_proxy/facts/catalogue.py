"""The tools of all servers, and the agent's names of them.

A catalogue is a value: when a server changes its list of tools, a new one is built.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ironcurtain_proxy.model.annotation import Annotations, ToolAnnotation
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition

SEPARATOR: Final = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguedTool:
    """One tool of one server."""

    exposed_name: str
    """The agent's name of it."""
    server: str
    """The operator's name of its server."""
    policy_server: str
    """The server's name in policy and annotations."""
    definition: ToolDefinition
    annotation: ToolAnnotation | None
    """The operator's annotation; None: calls are denied, unless the server is trusted."""
    held: str = ""
    """The reason why the entry is hidden and denied until a person accepts it; empty: it is
    offered."""

    @classmethod
    def described(
        cls, server: str, policy_server: str, tool: str, annotation: ToolAnnotation | None
    ) -> "CataloguedTool":
        """A tool with the schema of its annotation, for a server that does not run."""
        raw: dict[str, Json] = {"name": tool}
        if annotation is not None:
            raw["inputSchema"] = dict(annotation.input_schema)
        return cls(
            exposed_name=f"{server}{SEPARATOR}{tool}",
            server=server,
            policy_server=policy_server,
            definition=ToolDefinition(server, tool, raw),
            annotation=annotation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All tools, in the order of the servers and of their lists."""

    tools: tuple[CataloguedTool, ...]
    notices: tuple[str, ...] = ()
    """Notices for the operator, one line each."""
    _by_name: Mapping[str, CataloguedTool] = field(init=False, repr=False, compare=False)
    _by_tool: Mapping[tuple[str, str], CataloguedTool] = field(
        init=False, repr=False, compare=False
    )

    _owners: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {tool.exposed_name: tool for tool in self.tools})
        by_tool = {(tool.server, tool.definition.name): tool for tool in self.tools}
        object.__setattr__(self, "_by_tool", by_tool)
        owners: dict[str, frozenset[str]] = {}
        for server, name in by_tool:
            owners[name] = owners.get(name, frozenset()) | {server}
        object.__setattr__(self, "_owners", owners)

    def has_elsewhere(self, server: str, name: str) -> bool:
        """Whether another server has a tool of this name, too."""
        return bool(self._owners.get(name, frozenset()) - {server})

    def named(self, exposed_name: str) -> CataloguedTool | None:
        """The tool the agent means by a name."""
        return self._by_name.get(exposed_name)

    def tool(self, server: str, name: str) -> CataloguedTool | None:
        """A server's tool by the server's own name for it."""
        return self._by_tool.get((server, name))


def build_catalogue(
    servers: Sequence[ServerSpec],
    definitions: Mapping[str, Iterable[ToolDefinition]],
    annotations: Annotations,
    held: Mapping[str, Mapping[str, str]] | None = None,
    *,
    has_prefix: bool = False,
) -> Catalogue:
    """Put the tools of all servers together.

    One configured server: its bare names. Several: `server__tool`, also while only one of them has
    answered, so that a name never changes its meaning.

    Args:
        servers: as configured; the reader of their file has refused ambiguous names.
        definitions: by server name; a server that has not answered is missing.
        annotations: by (policy server, tool).
        held: by server and tool, why it is held until a person accepts it.
        has_prefix: `server__tool` also with one server.
    """
    is_bare = len(servers) == 1 and not has_prefix
    tools: list[CataloguedTool] = []
    notices: list[str] = []
    for spec in servers:
        seen: set[str] = set()
        holds = (held or {}).get(spec.name, {})
        for definition in definitions.get(spec.name, ()):
            name = definition.name
            if name in seen:
                notices.append(f'server "{spec.name}" lists tool "{name}" twice; the first counts')
                continue
            seen.add(name)
            tools.append(
                CataloguedTool(
                    exposed_name=name if is_bare else f"{spec.name}{SEPARATOR}{name}",
                    server=spec.name,
                    policy_server=spec.annotations,
                    definition=definition,
                    annotation=annotations.get((spec.annotations, name)),
                    held=holds.get(name, ""),
                )
            )
    return Catalogue(tools=tuple(tools), notices=tuple(notices))
