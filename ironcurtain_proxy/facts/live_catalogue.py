"""The current catalogue, built again when servers change their lists."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from ironcurtain_proxy.facts.catalogue import SEPARATOR, Catalogue, CataloguedTool, build_catalogue
from ironcurtain_proxy.facts.fingerprint import fingerprint
from ironcurtain_proxy.facts.naming import Names, views_of
from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition

RESERVED: Final = "ironcurtain_"
"""The prefix of the proxy's own tools: a server's tool with such a name is never reached."""


class ToolLists(Protocol):
    """The source of the servers' tools."""

    def tools_now(self) -> Mapping[str, tuple[ToolDefinition, ...]]:
        """The tools of all servers that have listed them."""

    async def until_settled(self, server: str) -> None:
        """Wait, up to a deadline, until a server has started or failed."""

    async def until_started(self, server: str) -> str:
        """Wait as a call does. Returns what the agent is told when it has not started."""


ToolPins: TypeAlias = Callable[[str, Mapping[str, Json]], Mapping[str, str]]
"""Gives the held tools of a server, each with the reason why a person must accept it first."""


class LiveCatalogue:
    """Implements `ports.ToolFinder`, and answers `tools/list`."""

    def __init__(
        self,
        servers: Sequence[ServerSpec],
        annotations: Annotations,
        source: ToolLists,
        pins: ToolPins = lambda _server, _tools: {},
        *,
        has_prefix: bool = False,
    ) -> None:
        """Begin without tools.

        Args:
            servers: as configured.
            annotations: by (policy server, tool).
            source: the lists of the servers.
            pins: the tools of a server that are held, each with the reason.
            has_prefix: names carry their server's, also where there is one server.
        """
        self._pins = pins
        self._judged: dict[str, tuple[tuple[ToolDefinition, ...], Mapping[str, str]]] = {}
        """The tools that were compared with their pins, and the held ones among them, by server."""
        self._servers = tuple(servers)
        self.naming = Names([spec.name for spec in servers], has_prefix)
        """The agent's names of prompts and resources."""
        self._annotations = annotations
        self._source = source
        self._current: Catalogue | None = None
        self._names: dict[tuple[str, str], frozenset[str]] = {}
        """The results of `names` in the current catalogue, by server and tool."""
        self._listed: set[str] = set()
        """The servers whose tools are known."""

    @property
    def tools(self) -> tuple[CataloguedTool, ...]:
        """The current tools."""
        return () if self._current is None else self._current.tools

    def annotate(self, annotations: Annotations) -> None:
        """Replace the annotations for later calls."""
        self._annotations = annotations
        if self._current is not None:
            self.refresh()

    def refresh(self) -> Catalogue:
        """Read the current lists of the servers."""
        definitions = self._source.tools_now()
        self._names = {}
        self._listed = {name for name, tools in definitions.items() if tools}
        held = {name: self._held(name, tools) for name, tools in definitions.items() if tools}
        self._current = build_catalogue(
            self._servers, definitions, self._annotations, held, has_prefix=self.naming.has_prefix
        )
        return self._current

    def look_at_pins_again(self, server: str) -> None:
        """Hold a server to its pins anew: a person has accepted something."""
        self._judged.pop(server, None)

    def _held(self, server: str, tools: tuple[ToolDefinition, ...]) -> Mapping[str, str]:
        known = self._judged.get(server)
        if known is not None and known[0] is tools:
            return known[1]
        held = self._pins(server, {tool.name: dict(tool.raw) for tool in tools})
        self._judged[server] = tools, held
        return held

    async def ready(self, exposed_name: str) -> str:
        """Wait for the server of a tool: a call may come before its server is ready.

        Waits only for the server to which the name points. Returns why the tool may be missing.
        """
        if self.find(exposed_name) is not None:
            return ""
        why: list[str] = []
        for spec in self._servers:
            if exposed_name.startswith(self.exposed(spec.name, "")):
                why.append(await self._source.until_started(spec.name))
                self.refresh()
        return " ".join(filter(None, why))

    async def listing(self) -> list[Json]:
        """Every tool's object as its server wrote it, apart from its name and that of its view."""
        for spec in self._servers:
            await self._source.until_settled(spec.name)
        return [self._exposed(tool) for tool in self.refresh().tools if not tool.held]

    def declares_view(self, server: str, uri: str) -> bool:
        """Whether a tool of a server declares this resource as its view (MCP Apps)."""
        tools = [] if self._current is None else self._current.tools
        return any(
            tool.server == server and not tool.held and uri in views_of(tool.definition.raw)
            for tool in tools
        )

    def find(self, exposed_name: str) -> tuple[str, str] | None:
        """The (server, tool) of the agent's name; None: there is none."""
        if self._current is None or exposed_name.startswith(RESERVED):
            return None
        tool = self._current.named(exposed_name)
        return None if tool is None else (tool.server, tool.definition.name)

    def exposed(self, server: str, tool: str) -> str:
        """The agent's name of a server's tool, which need not exist."""
        return f"{server}{SEPARATOR}{tool}" if self.naming.has_prefix else tool

    def definition(self, server: str, tool: str) -> str:
        """SHA-256 of the tool's definition as it is now, in hexadecimal."""
        found = self.lookup(server, tool)
        return "" if found is None else fingerprint(server, tool, found.definition.raw)

    def names(self, server: str, tool: str) -> frozenset[str]:
        """The operator's names of a tool: `server/tool`, and `tool` if only one server has it."""
        known = self._names.get((server, tool))
        if known is None:
            known = self._names_now(server, tool)
            if self.lookup(server, tool) is not None:
                self._names[server, tool] = known
        return known

    def _names_now(self, server: str, tool: str) -> frozenset[str]:
        full = f"{server}/{tool}"
        # While a server has not listed its tools, nobody knows whether it has one of this name:
        # what the operator said of the bare name must not hold for another server's tool meanwhile.
        is_known = self._current is not None and len(self._listed) == len(self._servers)
        if not is_known or self._current is None or self._current.has_elsewhere(server, tool):
            return frozenset([full])
        return frozenset([full, tool])

    def lookup(self, server: str, tool: str) -> CataloguedTool | None:
        """A server's tool by the server's own name for it."""
        return None if self._current is None else self._current.tool(server, tool)

    def _exposed(self, tool: CataloguedTool) -> dict[str, Json]:
        raw = dict(self.naming.tool(tool.server, tool.definition.raw))
        raw["name"] = tool.exposed_name
        return raw
