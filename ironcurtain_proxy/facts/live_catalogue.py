"""The tools of all servers, the agent's names for what servers have, and tools nobody described.

A catalogue is a value: when a server changes its list of tools, a new one is built. With one server
the agent's names are the server's own. With several, or where the operator wants it always, a
prompt is `server__prompt`, as a tool is, and a resource `server+scheme:…`; a view of MCP Apps must
stay `ui://` and becomes `ui://server+…`. Any other name belongs to no server. URIs of a server's
own resources in its answers are renamed, too. A name grants nothing: the request for it is judged
when it comes.

Where the operator is asked about tools and arguments that nobody described, instead of denying
them, every text in the arguments is read by its form. The guess adds reasons to deny, and opens
nothing. Digests identify equal calls and equal servers.
"""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Final, Protocol, TypeAlias

import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import (
    Annotations,
    RoleSpec,
    ToolAnnotation,
    ToolsAlike,
    declared_arguments,
)
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.model.server import SHELL, ServerSpec, ToolDefinition, ToolResult
from ironcurtain_proxy.model.values import Arguments, Json, object_of

# --- catalogue


SEPARATOR: Final = "__"


class CataloguedTool(Struct, frozen=True, kw_only=True):
    """One tool of one server."""

    exposed_name: str
    """The agent's name of it."""
    server: str
    """The operator's name of its server."""
    policy_server: str
    """The server's name in policy and annotations."""
    definition: ToolDefinition
    annotation: ToolAnnotation | None
    """The operator's annotation, or None if calls are denied, unless the server is trusted."""
    held: str = ""
    """The reason why the entry is hidden and denied until a person accepts it, or empty if it is
    offered."""

    @classmethod
    def described(
        cls, server: str, policy_server: str, tool: str, annotation: ToolAnnotation | None
    ) -> "CataloguedTool":
        """Return a tool with the schema of its annotation, for a server that does not run."""
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


class Catalogue(Struct, frozen=True, kw_only=True, dict=True):
    """All tools, in the order of the servers and of their lists."""

    tools: tuple[CataloguedTool, ...]
    notices: tuple[str, ...] = ()
    """Notices for the operator, one line each."""

    @cached_property
    def by_name(self) -> Mapping[str, CataloguedTool]:
        """The tools by the names that the agent has for them."""
        return {tool.exposed_name: tool for tool in self.tools}

    @cached_property
    def by_tool(self) -> Mapping[tuple[str, str], CataloguedTool]:
        """The tools by their servers, and the servers' own names for them."""
        return {(tool.server, tool.definition.name): tool for tool in self.tools}

    @cached_property
    def _owners(self) -> Mapping[str, frozenset[str]]:
        owners: dict[str, frozenset[str]] = {}
        for server, name in self.by_tool:
            owners[name] = owners.get(name, frozenset()) | {server}
        return owners

    def has_elsewhere(self, server: str, name: str) -> bool:
        """Return whether another server has a tool of this name, too."""
        return bool(self._owners.get(name, frozenset()) - {server})


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


# --- fingerprint


def canonical(server: str, tool: str, arguments: Arguments) -> bytes:
    """Return server, tool and arguments as JSON text, independent of the order of keys."""
    call = [server, tool, arguments]
    try:
        return orjson.dumps(call, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(call, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def fingerprint(server: str, tool: str, arguments: Arguments) -> str:
    """SHA-256 of the canonical text, in hexadecimal."""
    return sha256(canonical(server, tool, arguments)).hexdigest()


def pin_digest(spec: ServerSpec, workspace: str | None) -> str:
    """Return the identity of a server for what it says of itself: the same in each workspace.

    An argument or variable that is the workspace itself is left out of it. One that is a file in
    there is not: it may be the server's code, which is another in each.
    """
    if workspace is None:
        return server_digest(spec)

    def plain(text: str) -> str:
        option, _, path = text.rpartition("=")
        is_it = path.rstrip("/") == workspace and (not option or option.startswith("-"))
        # No argument holds NUL, so this stands for nothing else.
        return f"{option}\0workspace" if is_it else text

    args = tuple([plain(one) for one in spec.args])
    env = {name: plain(one) for name, one in spec.env.items()}
    return server_digest(replace(spec, args=args, env=env), workspace)


def server_digest(spec: ServerSpec, workspace: str | None = None) -> str:
    """Return the identity of a server without its credentials: a name can get another meaning.

    Args:
        spec: the server.
        workspace: of the session. A server that runs there is the same in each workspace; what
            holds in one workspace alone is for the grants to say.
    """
    sandbox = spec.sandbox
    return fingerprint(
        spec.name,
        spec.annotations,
        {
            "command": spec.command,
            **({} if spec.remote is None else {"url": spec.remote.url}),
            "args": list(spec.args),
            "env": dict(spec.env),
            "cwd": "@workspace" if spec.cwd is not None and spec.cwd == workspace else spec.cwd,
            # None is the default, False is none: not the same.
            "sandbox": dict(sandbox) if isinstance(sandbox, Mapping) else sandbox,
        },
    )


# --- naming


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
        """Return the agent's name of a prompt."""
        return f"{server}{SEPARATOR}{name}" if self.has_prefix else name

    def prompt_meant(self, exposed: str) -> tuple[str, str] | None:
        """Return the server, and its own name of a prompt, or None if it is no name of a prompt."""
        if not self.has_prefix:
            return (self.servers[0], exposed) if self.servers else None
        return self._after(exposed, SEPARATOR)

    def uri(self, server: str, uri: str) -> str:
        """Return the agent's name of a resource."""
        if not self.has_prefix:
            return uri
        if uri.startswith(_VIEW):
            return f"{_VIEW}{server}{_JOIN}{uri[len(_VIEW) :]}"
        return f"{server}{_JOIN}{uri}"

    def uri_meant(self, exposed: str) -> tuple[str, str] | None:
        """Return the server, and its own URI of a resource.

        It is None if it is no name of a resource.
        """
        if not self.has_prefix:
            return (self.servers[0], exposed) if self.servers else None
        if exposed.startswith(_VIEW):
            found = self._after(exposed[len(_VIEW) :], _JOIN)
            return None if found is None else (found[0], _VIEW + found[1])
        return self._after(exposed, _JOIN)

    def _after(self, exposed: str, separator: str) -> tuple[str, str] | None:
        """Return the server whose name the text begins with, and what comes after.

        The longest wins.
        """
        found = [name for name in self.servers if exposed.startswith(name + separator)]
        if not found:
            return None
        server = max(found, key=len)
        return server, exposed[len(server) + len(separator) :]

    # --- in answers of servers

    def entry(self, server: str, entry: Mapping[str, Json], key: str) -> dict[str, Json]:
        """Return an entry of a list, with the URI or template at a key renamed."""
        value = entry.get(key)
        return {**entry, key: self.uri(server, value)} if isinstance(value, str) else dict(entry)

    def tool(self, server: str, raw: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return a tool's object, with the view that it names renamed."""
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
        """Return an answer with its resources renamed; the same value if it names none."""
        result = answer.result
        if not self.has_prefix or result is None:
            return answer
        renamed = dict(result)
        for key, rename in (
            ("content", self._block),
            (
                "contents",
                lambda of, one: self.entry(of, one, "uri") if isinstance(one, dict) else one,
            ),
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
        """Return a content block: a link to a resource, or a resource in it."""
        if not isinstance(block, dict):
            return block
        if block.get("type") == "resource_link":
            return self.entry(server, block, "uri")
        inner = block.get("resource")
        if block.get("type") == "resource" and isinstance(inner, dict):
            return {**block, "resource": self.entry(server, inner, "uri")}
        return block

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
    """Return the views that a tool says show its results."""
    told = object_of(raw.get("_meta"))
    named = [told.get(_VIEW_KEY), object_of(told.get("ui")).get("resourceUri")]
    return frozenset([one for one in named if isinstance(one, str)])


# --- live catalogue


RESERVED: Final = "ironcurtain_"
"""The prefix of the proxy's own tools: a server's tool with such a name is never reached."""


class ToolLists(Protocol):
    """The source of the servers' tools."""

    def tools_now(self) -> Mapping[str, tuple[ToolDefinition, ...]]:
        """Return the tools of all servers that have listed them."""

    async def until_settled(self, server: str) -> None:
        """Wait, up to a deadline, until a server has started or failed."""

    async def until_started(self, server: str) -> str:
        """Wait as a call does. Returns what the agent is told when it has not started."""

    async def list_again(self, server: str) -> None:
        """List the tools of a server again, unless that was done just now."""


ToolPins: TypeAlias = Callable[[str, Mapping[str, Json]], Mapping[str, str]]
"""Gives the held tools of a server, each with the reason why a person must accept it first."""


ToolHiding: TypeAlias = Callable[[str, str, ToolAnnotation | None], bool]
"""Says of a tool, by its server's name in the policy, whether it is not listed."""


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
        self.hides: ToolHiding = lambda _server, _tool, _annotation: False
        """Whether a tool is not listed, although it can be called and is denied then."""
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
        self.beside: LiveCatalogue | None = None
        """That of the other door of the same kernel; None: there is one door."""

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
                if not why[-1] and self.find(exposed_name) is None:
                    # A server may have a new tool, and its client may know it, without a word.
                    await self._source.list_again(spec.name)
                    self.refresh()
        return " ".join(filter(None, why))

    async def listing(self) -> list[Json]:
        """Return every tool as its server wrote it, apart from its name and its view's."""
        for spec in self._servers:
            await self._source.until_settled(spec.name)
        tools = self.refresh().tools
        return [self._exposed(one) for one in tools if not (one.held or self._is_hidden(one))]

    def _is_hidden(self, tool: CataloguedTool) -> bool:
        return self.hides(tool.policy_server, tool.definition.name, tool.annotation)

    def declares_view(self, server: str, uri: str) -> bool:
        """Return whether a tool of a server declares this resource as its view (MCP Apps)."""
        tools = [] if self._current is None else self._current.tools
        return any(
            tool.server == server and not tool.held and uri in views_of(tool.definition.raw)
            for tool in tools
        )

    def find(self, exposed_name: str) -> tuple[str, str] | None:
        """Return the (server, tool) of the agent's name, or None if there is none."""
        if self._current is None or exposed_name.startswith(RESERVED):
            return None
        tool = self._current.by_name.get(exposed_name)
        return None if tool is None else (tool.server, tool.definition.name)

    def exposed(self, server: str, tool: str) -> str:
        """Return the agent's name of a server's tool, which need not exist."""
        return f"{server}{SEPARATOR}{tool}" if self.naming.has_prefix else tool

    def definition(self, server: str, tool: str) -> str:
        """SHA-256 of the tool's definition as it is now, in hexadecimal.

        It is that of the other door's tool where this one takes the same arguments, so that what is
        remembered of one counts for both. A shell's commands may run elsewhere at each door.
        """
        found = self.lookup(server, tool)
        if found is None:
            return ""
        own = found.definition
        other = self.beside and server != SHELL and self.beside.lookup(server, tool)
        if other and not other.held and other.definition.input_schema == own.input_schema:
            own = other.definition
        return fingerprint(server, tool, own.raw)

    def names(self, server: str, tool: str) -> frozenset[str]:
        """Return a tool's names: `server/tool`, and `tool` if only one server has it."""
        known = self._names.get((server, tool))
        if known is None:
            known = self._names_now(server, tool)
            if self.lookup(server, tool) is not None:
                self._names[server, tool] = known
        return known

    def alike(self, server: str, tool: str) -> ToolsAlike:
        """Return the server's other tools that do the same kind of thing to files, with roles."""
        own = self.lookup(server, tool)
        is_like = None if own is None or own.annotation is None else own.annotation.shared_with
        beside = [one for one in self.tools if one.server == server and not one.held and one != own]
        found = {one.definition.name: is_like(one.annotation) for one in beside if is_like}
        return {name: (self.definition(server, name), its) for name, its in found.items() if its}

    def _names_now(self, server: str, tool: str) -> frozenset[str]:
        full = f"{server}/{tool}"
        # While a server has not listed its tools, nobody knows whether it has one of this name:
        # what the operator said of the bare name must not hold for another server's tool meanwhile.
        is_known = self._current is not None and len(self._listed) == len(self._servers)
        if not is_known or self._current is None or self._current.has_elsewhere(server, tool):
            return frozenset([full])
        return frozenset([full, tool])

    def lookup(self, server: str, tool: str) -> CataloguedTool | None:
        """Return a server's tool by the server's own name for it."""
        return None if self._current is None else self._current.by_tool.get((server, tool))

    def _exposed(self, tool: CataloguedTool) -> dict[str, Json]:
        raw = dict(self.naming.tool(tool.server, tool.definition.raw))
        raw["name"] = tool.exposed_name
        return raw


# --- unknown tools


_UNCLEAR: Final = RoleSpec(default=("unclear",))


def guessed(server: str, tool: str, arguments: Arguments, schema: Json = None) -> ToolAnnotation:
    """Return an annotation in which nothing is clear.

    Args:
        server: its name in rules.
        tool: the server's own name.
        arguments: of the call.
        schema: the tool's own, if it is known: an omitted argument may name something, too.
    """
    names = {*arguments, *(() if schema is None else declared_arguments(schema).names)}
    return ToolAnnotation(
        server=server, tool=tool, arguments=dict.fromkeys(sorted(names), _UNCLEAR)
    )


def widened(annotation: ToolAnnotation, arguments: Arguments) -> ToolAnnotation | None:
    """Return the annotation with the arguments of a call that it lacks, or None if it lacks none.

    The others keep their roles.
    """
    lacking = [name for name in arguments if name not in annotation.arguments]
    if not lacking:
        return None
    return replace(
        annotation, arguments={**annotation.arguments, **dict.fromkeys(lacking, _UNCLEAR)}
    )


def as_unknown(facts: Facts, undescribed: tuple[str, ...] = ()) -> Facts:
    """Return the facts of a guess: nobody has described the tool, or these arguments of it."""
    return replace(facts, request=replace(facts.request, annotated=False, undescribed=undescribed))
