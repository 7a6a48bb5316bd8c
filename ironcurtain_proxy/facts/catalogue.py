"""The tools of all servers, and the digests of calls.

The tools of all servers, and the agent's names of them.

A catalogue is a value: when a server changes its list of tools, a new one is built.

Digests that identify equal calls and equal servers.
"""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

import orjson

from ironcurtain_proxy.model.annotation import Annotations, ToolAnnotation
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition
from ironcurtain_proxy.model.values import Arguments, Json

# --- catalogue


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


# --- fingerprint


def canonical(server: str, tool: str, arguments: Arguments) -> bytes:
    """Server, tool and arguments as JSON text, independent of the order of keys."""
    call = [server, tool, arguments]
    try:
        return orjson.dumps(call, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(call, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def fingerprint(server: str, tool: str, arguments: Arguments) -> str:
    """SHA-256 of the canonical text, in hexadecimal."""
    return sha256(canonical(server, tool, arguments)).hexdigest()


def pin_digest(spec: ServerSpec, workspace: str | None) -> str:
    """The identity of a server for what it says of itself: the same in each workspace.

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
    """The identity of a server without its credentials: a name can get another meaning.

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
