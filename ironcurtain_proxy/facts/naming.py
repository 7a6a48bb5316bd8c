"""The agent's names of prompts and resources, and their translation.

With one server, the names are the server's own. With several, or where the operator wants it
always, a prompt is `server__prompt`, as a tool is, and a resource `server+scheme:…`; a view of MCP
Apps must stay `ui://` and becomes `ui://server+…`. Any other name belongs to no server.

URIs of a server's own resources in its answers are renamed, too. A name grants nothing: the request
for it is judged when it comes.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.facts.catalogue import SEPARATOR
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ToolResult

_JOIN: Final = "+"
_VIEW: Final = "ui://"
_VIEW_KEY: Final = "ui/resourceUri"
"""The key in `_meta` with which a tool names its view; or `resourceUri` under `ui`."""


class Names(Struct, frozen=True):
    """The names of one configuration. Server names are unambiguous, as their file's reader sees."""

    servers: Sequence[str]
    always: bool = False
    """Whether names carry their server's also where there is one server."""

    @property
    def has_prefix(self) -> bool:
        """Whether names carry their server's."""
        return self.always or len(self.servers) > 1

    def prompt(self, server: str, name: str) -> str:
        """The agent's name of a prompt."""
        return f"{server}{SEPARATOR}{name}" if self.has_prefix else name

    def prompt_meant(self, exposed: str) -> tuple[str, str] | None:
        """The server, and its own name of a prompt; None: it is no name of a prompt."""
        if not self.has_prefix:
            return (self.servers[0], exposed) if self.servers else None
        return self._after(exposed, SEPARATOR)

    def uri(self, server: str, uri: str) -> str:
        """The agent's name of a resource."""
        if not self.has_prefix:
            return uri
        if uri.startswith(_VIEW):
            return f"{_VIEW}{server}{_JOIN}{uri[len(_VIEW) :]}"
        return f"{server}{_JOIN}{uri}"

    def uri_meant(self, exposed: str) -> tuple[str, str] | None:
        """The server, and its own URI of a resource; None: it is no name of a resource."""
        if not self.has_prefix:
            return (self.servers[0], exposed) if self.servers else None
        if exposed.startswith(_VIEW):
            found = self._after(exposed[len(_VIEW) :], _JOIN)
            return None if found is None else (found[0], _VIEW + found[1])
        return self._after(exposed, _JOIN)

    def _after(self, exposed: str, separator: str) -> tuple[str, str] | None:
        """The server whose name the text begins with, and what comes after; the longest wins."""
        found = [name for name in self.servers if exposed.startswith(name + separator)]
        if not found:
            return None
        server = max(found, key=len)
        return server, exposed[len(server) + len(separator) :]

    # --- in answers of servers

    def entry(self, server: str, entry: Mapping[str, Json], key: str) -> dict[str, Json]:
        """An entry of a list, with the URI or template at a key renamed."""
        value = entry.get(key)
        return {**entry, key: self.uri(server, value)} if isinstance(value, str) else dict(entry)

    def tool(self, server: str, raw: Mapping[str, Json]) -> Mapping[str, Json]:
        """A tool's object, with the view that it names renamed."""
        meta = raw.get("_meta")
        if not self.has_prefix or not isinstance(meta, dict):
            return raw
        renamed = dict(meta)
        if isinstance(view := meta.get(_VIEW_KEY), str):
            renamed[_VIEW_KEY] = self.uri(server, view)
        ui = meta.get("ui")
        if isinstance(ui, dict) and isinstance(view := ui.get("resourceUri"), str):
            renamed["ui"] = {**ui, "resourceUri": self.uri(server, view)}
        return {**raw, "_meta": renamed}

    def result(self, server: str, answer: ToolResult) -> ToolResult:
        """An answer with its resources renamed; the same value if it names none."""
        result = answer.result
        if not self.has_prefix or result is None:
            return answer
        renamed = dict(result)
        for key, rename in (
            ("content", self._block),
            ("contents", self._contents),
            ("messages", self._message),
        ):
            items = result.get(key)
            if isinstance(items, list):
                found = [rename(server, item) for item in items]
                if any(new is not old for new, old in zip(found, items, strict=True)):
                    renamed[key] = found
        if all(renamed[key] is value for key, value in result.items()):
            return answer
        return ToolResult(result=renamed, refused_host=answer.refused_host)

    def _block(self, server: str, block: Json) -> Json:
        """A content block: a link to a resource, or a resource in it."""
        if not isinstance(block, dict):
            return block
        if block.get("type") == "resource_link":
            return self.entry(server, block, "uri")
        inner = block.get("resource")
        if block.get("type") == "resource" and isinstance(inner, dict):
            return {**block, "resource": self.entry(server, inner, "uri")}
        return block

    def _contents(self, server: str, item: Json) -> Json:
        return self.entry(server, item, "uri") if isinstance(item, dict) else item

    def _message(self, server: str, message: Json) -> Json:
        if not isinstance(message, dict):
            return message
        content = message.get("content")
        renamed: Json
        if isinstance(content, list):
            renamed = [self._block(server, block) for block in content]
        else:
            renamed = self._block(server, content)
        return message if renamed == content else {**message, "content": renamed}


def views_of(raw: Mapping[str, Json]) -> frozenset[str]:
    """The views that a tool says show its results."""
    meta = raw.get("_meta")
    if not isinstance(meta, dict):
        return frozenset()
    ui = meta.get("ui")
    named = [meta.get(_VIEW_KEY), ui.get("resourceUri") if isinstance(ui, dict) else None]
    return frozenset([one for one in named if isinstance(one, str)])
