"""A server with a proposal for each of its tools, which its operator may change."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, cast

import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.config.annotating.annotate import can_be_written, entry_of
from ironcurtain_proxy.config.annotating.propose import propose, works_on_github
from ironcurtain_proxy.config.annotating.texts import Proposed, ProposedTool
from ironcurtain_proxy.config.reading.document import strictly
from ironcurtain_proxy.config.reading.reading import is_there, read_document
from ironcurtain_proxy.config.servers.recognition import Pack, schema_digest
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import Roles, ToolEffect
from ironcurtain_proxy.model.values import Json, list_of, object_of

_MOST_TOOLS: Final = 2_000


class DescribedTool(Struct, frozen=True, kw_only=True):
    """A tool as its server lists it, with the proposal."""

    raw: Mapping[str, Json]
    proposal: ProposedTool
    source: str = ""
    """The pack that the proposal comes from, or empty if it was derived from the list."""
    is_prompt: bool = False
    """Whether this is a prompt, which has no effect to ask for."""

    @property
    def name(self) -> str:
        """The server's name of the tool."""
        return self.proposal.name


class DescribedServer(Struct, frozen=True, kw_only=True):
    """The tools of one server."""

    name: str
    """The operator's name."""
    annotations: str
    """The server's name in policy and annotations."""
    tools: tuple[DescribedTool, ...] = ()
    error: str = ""
    """The reason why the tools are not known, or empty if they are known."""
    left_out: int = 0
    """Tools and prompts that cannot be written into a file."""
    prompts: tuple[DescribedTool, ...] | None = ()
    """The prompts, with their arguments as a schema, or None if the server did not list them."""
    resources: tuple[str, ...] = ()
    """The URIs, and templates of URIs, of the server's resources."""


def described(
    name: str,
    annotations: str,
    tools: Sequence[Mapping[str, Json]],
    pack: Pack | None = None,
    *,
    is_remote: bool = False,
) -> DescribedServer:
    """Return the tools of a server, each with a proposal.

    Args:
        name: the operator's name of the server.
        annotations: its name in policy and annotations.
        tools: objects of `tools/list`.
        pack: of the package that its command starts.
        is_remote: whether the server runs on another machine. Then no role names a path or a
            command: a rule about the workspace would allow what leaves with the call.
    """
    readable = [tool for tool in tools[:_MOST_TOOLS] if can_be_written(tool)]
    github = works_on_github(readable, name)
    found: list[DescribedTool] = []
    seen: set[str] = set()
    for tool in readable:
        proposal = propose(tool, is_github=github)
        if proposal.name not in seen:
            seen.add(proposal.name)
            one = _by_pack(tool, proposal, pack)
            if is_remote:
                one = replace(one, proposal=one.proposal.elsewhere())
            found.append(one)
    return DescribedServer(
        name=name,
        annotations=annotations,
        tools=tuple(found),
        left_out=len(tools) - len(readable),
    )


def described_prompts(
    prompts: Sequence[Mapping[str, Json]],
) -> tuple[tuple[DescribedTool, ...], int]:
    """Return the prompts of a server, each with a proposal; and how many cannot be written down.

    A prompt is proposed as a tool whose arguments are texts: it may fetch or read what they name.
    """
    found: dict[str, DescribedTool] = {}
    for prompt in prompts[:_MOST_TOOLS]:
        entries = [one for one in list_of(prompt.get("arguments")) if isinstance(one, dict)]
        properties: dict[str, Json] = {
            str(one["name"]): {"type": "string", "description": one.get("description", "")}
            for one in entries
            if "name" in one
        }
        tool: dict[str, Json] = {
            **{key: prompt[key] for key in ("name", "description") if key in prompt},
            "inputSchema": {"type": "object", "properties": properties},
        }
        if can_be_written(tool):
            proposal = propose(tool)
            found.setdefault(
                proposal.name, DescribedTool(raw=tool, proposal=proposal, is_prompt=True)
            )
    return tuple(found.values()), len(prompts) - len(found)


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
    """Return roles as `tool-annotations.json` writes them, without cases."""
    if isinstance(spec, list):
        return Proposed(roles=cast("Roles", tuple(spec)), why=why)
    found = spec if isinstance(spec, dict) else {}
    members = object_of(found.get("inside")).items()
    default = found.get("default")
    return Proposed(
        roles=cast("Roles", tuple(default) if isinstance(default, list) else ("unclear",)),
        why=why,
        inside={name: read_roles(one, why) for name, one in members},
    )


def input_hash(server: DescribedServer) -> str:
    """Return a digest of all texts and schemas of the server's tools."""
    said = sorted([orjson.dumps(tool.raw, option=orjson.OPT_SORT_KEYS) for tool in server.tools])
    return sha256(b"\0".join(said)).hexdigest()


def with_server(path: Path, server: DescribedServer) -> dict[str, Json]:
    """Return the document of a file with the server's annotations replaced.

    Raises:
        ConfigurationError: the file cannot be read, and is unchanged.
        OSError: the file could not be opened.
    """
    document: Json = {}
    if is_there(path):
        read = strictly(lambda report: read_document(path, report))
        document = None if read is None else read[1].value
    servers = document.get("servers", {}) if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(servers, dict):
        raise ConfigurationError(f"{path}: is not a file of annotations; it was not changed")
    entry = _entry(server)
    old = servers.get(server.annotations)
    if server.prompts is None and isinstance(old, dict) and "prompts" in old:
        entry["prompts"] = old["prompts"]
    return {**document, "servers": {**servers, server.annotations: entry}}


def _entry(server: DescribedServer) -> dict[str, Json]:
    tools: list[Json] = []
    for tool in server.tools:
        schema = tool.raw.get("inputSchema")
        roles = {name: one.as_json() for name, one in tool.proposal.arguments.items()}
        held = schema if isinstance(schema, dict) else {}
        entry = entry_of(tool.name, roles, held, tool.proposal.effect)
        doubts = tool.proposal.uncertain()
        if doubts:
            entry["comment"] = f"Not certain: {', '.join(doubts)[:500]}"
        tools.append(entry)
    prompts: list[Json] = [_prompt(prompt) for prompt in server.prompts or ()]
    found: dict[str, Json] = {"inputHash": input_hash(server), "tools": tools}
    return {**found, "prompts": prompts} if prompts else found


def _prompt(prompt: DescribedTool) -> dict[str, Json]:
    roles = {name: one.as_json() for name, one in prompt.proposal.arguments.items()}
    entry: dict[str, Json] = {"promptName": prompt.name, "args": roles}
    doubts = prompt.proposal.uncertain()
    return {**entry, "comment": f"Not certain: {', '.join(doubts)[:500]}"} if doubts else entry
