"""Tool names as the operator writes them: `server/tool`, or the tool's own name."""

from collections.abc import Mapping

from msgspec import Struct

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.problems import nearest, shown


class ToolNames(Struct, frozen=True):
    """Reads tool names. A name that no tool can have is reported, since it would never match."""

    servers: tuple[str, ...]
    """All configured servers, including those that do not run."""

    def item(self, spot: Spot) -> str:
        """One name in a list."""
        name = spot.name()
        self.check(spot, name)
        return name

    def listed(self, spot: Spot) -> tuple[str, ...]:
        """A list of names without duplicates."""
        return tuple(dict.fromkeys(spot.each(self.item)))

    def keys(self, spot: Spot) -> Mapping[str, Spot]:
        """An object whose keys are names of tools."""
        found = {key: inner for key, inner in spot.members().items() if not key.startswith("_")}
        for name, inner in found.items():
            self.check(inner, name)
        return found

    def check(self, spot: Spot, name: str) -> None:
        """Report a name that no tool can have."""
        server, slash, tool = name.partition("/")
        if name != name.strip() or not name.isprintable() or (slash and not (server and tool)):
            spot.error("must be SERVER/TOOL, or the name of a tool")
        elif slash and self.servers and server not in self.servers:
            guess = nearest(server, self.servers)
            spot.warning(f"there is no server {shown(server)}", guess and f"{guess}/{tool}")
        elif not slash:
            self._check_bare(spot, name)

    def _check_bare(self, spot: Spot, name: str) -> None:
        server, _, tool = name.partition("__")
        if tool and server in self.servers:
            spot.warning("the agent's name of a tool: settings use SERVER/TOOL", f"{server}/{tool}")
