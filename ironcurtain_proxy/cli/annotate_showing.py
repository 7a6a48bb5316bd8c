"""The output of `annotate`. Control characters in a server's texts are made visible."""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.cli.init_dialogue import clean
from ironcurtain_proxy.config.annotating.described import DescribedServer, DescribedTool
from ironcurtain_proxy.config.annotating.proposal import Proposed
from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.pins.scan import scan

OPENS: Final[Mapping[ArgumentRole, str]] = MappingProxyType(
    {
        "none": "opens everything: no rule is ever asked about it",
        "unclear": "opens nothing: each call is asked about, paths and URLs in it are checked",
        "read-path": "files that rules and the workspace let be read",
        "write-path": "files that rules and the workspace let be changed",
        "delete-path": "files that rules and the workspace let be deleted",
        "fetch-url": "hosts that rules allow",
        "command": "commands of the local shell, judged one by one",
        "sql": "SQL, by what it does: reads, writes, destroys",
        "identifier": "things of the server's service that rules name",
        "message": "texts to other people: no rule is asked about it",
        "email-address": "people: no rule is asked about it",
    }
)
"""The access that each role stands for, in one line. Other roles can be written by hand."""

DOES: Final[Mapping[ToolEffect | None, str]] = MappingProxyType(
    {
        "reads": "it only reads",
        "writes": "it changes what can be changed back",
        "destroys": "it deletes: asked about each time where no path says what",
        "sends": "it reaches other people or another machine",
        "runs": "it runs commands or programs",
        None: "not clear: containment never settles a call",
    }
)


def shown_tool(tool: DescribedTool) -> Iterator[str]:
    """A tool or prompt with its arguments, one line each."""
    proposal = tool.proposal
    yield ""
    effect = proposal.effect or "?"
    source = f" [{tool.source}]" if tool.source else ""
    if tool.is_prompt:
        yield f"prompt {clean(proposal.name)}"
    else:
        yield f"{clean(proposal.name)}  {effect}: {DOES[proposal.effect]}{source}"
    said = tool.raw.get("description")
    if isinstance(said, str) and said.strip():
        yield f"    {clean(' '.join(said.split()), 110)}"
    for finding in scan(proposal.name, dict(tool.raw)):
        yield f"    sign of an attack: {finding}"
    hints = tool.raw.get("annotations")
    if isinstance(hints, dict) and hints:
        told = ", ".join([f"{name}: {str(one).lower()}" for name, one in hints.items()])
        yield f"    the server says: {clean(told)}"
    for name, one in proposal.arguments.items():
        yield from _shown_argument(name, one, _schema_of(tool, name))


def _shown_argument(name: str, proposed: Proposed, schema: Mapping[str, Json]) -> Iterator[str]:
    for member, one in proposed.each(name):
        mark = "" if one.certain else " ?"
        roles = ", ".join(one.roles) + mark
        about = ""
        if member == name:
            said = schema.get("description")
            kind = _type_of(schema)
            about = f"{kind}{': ' if isinstance(said, str) and kind else ''}"
            about += " ".join(said.split()) if isinstance(said, str) else ""
        why = f" ({one.why})" if not one.certain else ""
        yield f"  {clean(member, 40):<28} {roles:<24} {clean(about, 60)}{visible(why)}".rstrip()


def _schema_of(tool: DescribedTool, name: str) -> Mapping[str, Json]:
    schema = tool.raw.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = properties.get(name) if isinstance(properties, dict) else None
    return found if isinstance(found, dict) else {}


def _type_of(schema: Mapping[str, Json]) -> str:
    choice = schema.get("enum")
    if isinstance(choice, list):
        return "one of " + ", ".join([str(one) for one in choice[:6]])
    said = schema.get("type")
    form = schema.get("format")
    return f"{said if isinstance(said, str) else ''}{f' ({form})' if isinstance(form, str) else ''}"


def short_rules(server: DescribedServer) -> Iterator[str]:
    """A first policy for the server, in the short form."""
    calm = [t.name for t in server.tools if t.proposal.effect == "reads" and _is_calm(t)]
    yield ""
    yield "A policy to begin with, for ~/.ironcurtain/policy.yaml:"
    if calm:
        yield f"allow {visible(server.annotations)}: [{', '.join([visible(one) for one in calm])}]"
    yield f'ask {visible(server.annotations)}: "*"'
    named = [*["prompts"][: len(server.prompts or ())], *["resources"][: len(server.resources)]]
    if named:
        yield f"Its {' and '.join(named)} need rules of their own: see docs/protocol.md"


def shown_resources(server: DescribedServer) -> Iterator[str]:
    """The kinds of the resources that it lists, in one line each."""
    schemes = Counter([uri.partition(":")[0] for uri in server.resources])
    if schemes:
        yield ""
    for scheme, count in schemes.items():
        yield f"resources {clean(scheme, 40)}: {count} listed"


def _is_calm(tool: DescribedTool) -> bool:
    """Whether no argument of the tool names a file, a host or a command."""
    roles = [
        role
        for name, one in tool.proposal.arguments.items()
        for _, inner in one.each(name)
        for role in inner.roles
    ]
    return all(role in {"none", "identifier"} for role in roles)


def as_json(server: DescribedServer) -> dict[str, Json]:
    """The annotated server as JSON."""
    tools: list[Json] = [_as_json(tool) for tool in server.tools]
    return {
        "tools": tools,
        "prompts": [_as_json(prompt) for prompt in server.prompts or ()],
        "resources": [*server.resources],
        "leftOut": server.left_out,
    }


def _as_json(tool: DescribedTool) -> dict[str, Json]:
    proposal = tool.proposal
    return {
        "name": proposal.name,
        "effect": proposal.effect,
        "why": proposal.why,
        "source": tool.source or None,
        "arguments": {name: one.as_json() for name, one in proposal.arguments.items()},
        "uncertain": [*proposal.uncertain()],
    }
