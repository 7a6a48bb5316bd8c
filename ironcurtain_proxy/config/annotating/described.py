"""A server with a proposal for each of its tools, which its operator may change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, cast

import orjson

from ironcurtain_proxy.config.annotating.annotate import can_be_written
from ironcurtain_proxy.config.annotating.known import known_servers
from ironcurtain_proxy.config.annotating.proposal import Proposed, ProposedTool, Roles
from ironcurtain_proxy.config.annotating.propose import propose, works_on_github
from ironcurtain_proxy.config.packs.pack import Pack, schema_digest
from ironcurtain_proxy.model.annotation import ToolEffect
from ironcurtain_proxy.model.json import Json

_MOST_TOOLS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTool:
    """A tool as its server lists it, with what is proposed."""

    raw: Mapping[str, Json]
    proposal: ProposedTool
    source: str = ""
    """The pack that says so; empty: it was worked out."""

    @property
    def name(self) -> str:
        """The server's name of the tool."""
        return self.proposal.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedServer:
    """The tools of one server."""

    name: str
    """The operator's name."""
    annotations: str
    """The server's name in policy and annotations."""
    tools: tuple[DescribedTool, ...] = ()
    error: str = ""
    """Why its tools are not known; empty: they are."""
    left_out: int = 0
    """Tools that cannot be written into a file."""
    shipped: tuple[str, ...] = field(default=())
    """Its tools that the package describes already."""


def described(
    name: str, annotations: str, tools: Sequence[Mapping[str, Json]], pack: Pack | None = None
) -> DescribedServer:
    """The tools of a server, each with a proposal.

    Args:
        name: the operator's name of the server.
        annotations: its name in policy and annotations.
        tools: objects of `tools/list`.
        pack: of the package that its command starts.
    """
    readable = [tool for tool in tools[:_MOST_TOOLS] if can_be_written(tool)]
    github = works_on_github(readable, name)
    known = known_servers().get(annotations, {})
    found: list[DescribedTool] = []
    seen: set[str] = set()
    for tool in readable:
        proposal = propose(tool, is_github=github)
        if proposal.name not in seen:
            seen.add(proposal.name)
            found.append(_by_pack(tool, proposal, pack))
    return DescribedServer(
        name=name,
        annotations=annotations,
        tools=tuple(found),
        left_out=len(tools) - len(readable),
        shipped=tuple([tool.name for tool in found if tool.name in known]),
    )


def _by_pack(tool: Mapping[str, Json], proposal: ProposedTool, pack: Pack | None) -> DescribedTool:
    known = None if pack is None else pack.tools.get(proposal.name)
    roles = None if known is None else known.get("args")
    if pack is None or known is None or not isinstance(roles, dict):
        return DescribedTool(raw=tool, proposal=proposal)
    arguments = {
        name: read_roles(roles[name], "its pack") if name in roles else one
        for name, one in proposal.arguments.items()
    }
    same = pack.schemas.get(proposal.name) == schema_digest(tool.get("inputSchema"))
    source = f"pack {pack.name} {pack.version}" + ("" if same else ", of another schema")
    return DescribedTool(
        raw=tool,
        proposal=ProposedTool(
            name=proposal.name,
            arguments=arguments,
            effect=cast("ToolEffect | None", known.get("effect")),
            why="its pack",
        ),
        source=source,
    )


def read_roles(spec: Json, why: str) -> Proposed:
    """Roles as `tool-annotations.json` writes them, without cases."""
    if isinstance(spec, list):
        return Proposed(roles=cast("Roles", tuple(spec)), why=why)
    found = spec if isinstance(spec, dict) else {}
    inside = found.get("inside")
    members = inside.items() if isinstance(inside, dict) else ()
    default = found.get("default")
    return Proposed(
        roles=cast("Roles", tuple(default) if isinstance(default, list) else ("unclear",)),
        why=why,
        inside={name: read_roles(one, why) for name, one in members},
    )


def input_hash(server: DescribedServer) -> str:
    """A digest of all that the server says of its tools."""
    said = sorted([orjson.dumps(tool.raw, option=orjson.OPT_SORT_KEYS) for tool in server.tools])
    return sha256(b"\0".join(said)).hexdigest()
