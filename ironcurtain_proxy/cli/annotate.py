"""`ironcurtain-proxy annotate SERVER`: roles of arguments, proposed, shown and written."""

import argparse
import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.cli.explain_overlay import refuse_unknown_server
from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean, require_terminal
from ironcurtain_proxy.cli.init_servers import settings_for
from ironcurtain_proxy.cli.output import picked, saying_what_holds
from ironcurtain_proxy.config.annotating.described import (
    DescribedServer,
    DescribedTool,
    described,
    described_prompts,
    with_server,
)
from ironcurtain_proxy.config.annotating.texts import Proposed
from ironcurtain_proxy.config.clients.finding import read_client_file
from ironcurtain_proxy.config.policy.annotations_file import ANNOTATIONS_NAME
from ironcurtain_proxy.config.policy.policy_files import find_policy_files
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.presets import planned, write
from ironcurtain_proxy.config.reading.document import Report, strictly
from ironcurtain_proxy.config.servers.recognition import read_pack, recognised_pack
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, object_of
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.pins.pinned import scan

# --- a proposal as text, and its change by a person -----------------------------------------------
# The output of `annotate`. Control characters in a server's texts are made visible.


_WORDS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
OPENS: Final[Mapping[ArgumentRole, str]] = _WORDS["opens"]
"""The access that each role stands for, in one line. Other roles can be written by hand."""

DOES: Final[Mapping[ToolEffect | None, str]] = {
    None if name == "unclear" else name: words for name, words in _WORDS["does"].items()
}


def shown_tool(tool: DescribedTool) -> Iterator[str]:
    """Yield a tool or prompt with its arguments, one line each."""
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
    properties = object_of(object_of(tool.raw.get("inputSchema")).get("properties"))
    return object_of(properties.get(name))


def _type_of(schema: Mapping[str, Json]) -> str:
    choice = schema.get("enum")
    if isinstance(choice, list):
        return "one of " + ", ".join([str(one) for one in choice[:6]])
    said = schema.get("type")
    form = schema.get("format")
    return f"{said if isinstance(said, str) else ''}{f' ({form})' if isinstance(form, str) else ''}"


def short_rules(server: DescribedServer) -> Iterator[str]:
    """Yield a first policy for the server, in the short form."""
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
    """Yield the kinds of the resources that it lists, in one line each."""
    schemes = Counter([uri.partition(":")[0] for uri in server.resources])
    if schemes:
        yield ""
    for scheme, count in schemes.items():
        yield f"resources {clean(scheme, 40)}: {count} listed"


def _is_calm(tool: DescribedTool) -> bool:
    """Return whether no argument of the tool names a file, a host or a command."""
    roles = [
        role
        for name, one in tool.proposal.arguments.items()
        for _, inner in one.each(name)
        for role in inner.roles
    ]
    return all(role in {"none", "identifier"} for role in roles)


def as_json(server: DescribedServer) -> dict[str, Json]:
    """Return the annotated server as JSON."""
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
        **picked(proposal, "name effect why"),
        "source": tool.source or None,
        "arguments": {name: one.as_json() for name, one in proposal.arguments.items()},
        "uncertain": [*proposal.uncertain()],
    }


# --- the command ----------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Annotate a server's tools. Return 1 if the server did not answer.

    Raises:
        ConfigurationError: an argument or a file cannot be used.
    """
    talk = Dialogue(yes=options.yes or options.dry_run, as_json=options.json)
    with saying_what_holds(lambda: talk.holds):
        return _annotated(talk, options)


def _annotated(talk: Dialogue, options: argparse.Namespace) -> int:
    require_terminal(talk, "annotate")
    settings = _settings(options)
    spec = _chosen(settings, options.server)
    server = _read(replace(settings, servers=(spec,)), spec, options.seconds)
    talk.answer |= {"server": spec.name, "annotations": server.annotations}
    if server.error:
        talk.say(f"{spec.name}: did not answer: {visible(server.error)}")
        talk.answer["error"] = server.error
        return talk.end(1)
    _show(server, talk)
    if not talk.yes:
        server = reviewed(server, talk)
    talk.answer |= as_json(server)
    if not options.dry_run:
        _write(settings, server, talk)
    for line in short_rules(server):
        talk.say(line)
    return talk.end(0)


def _show(server: DescribedServer, talk: Dialogue) -> None:
    for tool in (*server.tools, *(server.prompts or ())):
        for line in shown_tool(tool):
            talk.say(line)
    for line in shown_resources(server):
        talk.say(line)
    if server.prompts is None:
        talk.say("its prompts could not be listed: their annotations stay unchanged")
    if server.left_out:
        talk.say(f"{server.left_out} more tools or prompts cannot be written down: all are denied")


def _settings(options: argparse.Namespace) -> Settings:
    if options.server_file is None:
        return load_settings(os.environ, options.config)
    client = strictly(lambda report: read_client_file(options.server_file, report))
    return settings_for(client.entries, Path.cwd())


def _chosen(settings: Settings, name: str) -> ServerSpec:
    found = {spec.name: spec for spec in settings.servers}
    refuse_unknown_server(name, found)
    spec = found[name]
    # Its tools can be listed without any host; a server that needs one says so, and is asked again.
    return replace(spec, allowed_domains=(), sandbox=_offline(spec))


def _offline(spec: ServerSpec) -> "Mapping[str, Json] | bool | None":
    if not isinstance(spec.sandbox, dict):
        return spec.sandbox
    return {name: one for name, one in spec.sandbox.items() if name != "network"}


def _read(settings: Settings, spec: ServerSpec, seconds: float) -> DescribedServer:
    # Joins all folders: long to import, and only this step needs them.
    from ironcurtain_proxy.wiring.rehearsal import list_live_tools  # noqa: PLC0415

    found = list_live_tools(settings, load_policy(settings).policy, patience=seconds)
    if spec.name not in found.answered:
        why = found.silent.get(spec.name) or f"no answer within {seconds:g} seconds"
        return DescribedServer(name=spec.name, annotations=spec.annotations, error=why)
    tools = [tool.raw for tool in found.definitions if tool.server == spec.name]
    packed = recognised_pack(spec.command, spec.args)
    pack = None if packed is None else read_pack(packed)
    is_remote = spec.remote is not None
    server = described(spec.name, spec.annotations, tools, pack, is_remote=is_remote)
    offered = found.prompts.get(spec.name)
    prompts, unwritten = (None, 0) if offered is None else described_prompts(offered)
    resources = found.resources.get(spec.name, ())
    left_out = server.left_out + unwritten
    return replace(server, prompts=prompts, resources=resources, left_out=left_out)


def _write(settings: Settings, server: DescribedServer, talk: Dialogue) -> None:
    files = find_policy_files(settings, Report())
    path = files.annotations or settings.state_dir / "generated" / ANNOTATIONS_NAME
    try:
        plan = planned(path, with_server(path, server))
        done = write([plan], SystemClock().now())
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: cannot be written: {error.strerror}") from None
    for file, backup in done:
        talk.say(f"{file.path}: written" + (f"; as it was: {backup.name}" if backup else ""))
    if not done:
        talk.say(f"{path}: has this content already")
    talk.answer["written"] = [str(file.path) for file, _ in done]


_KEYS: Final = "abcdefghijklmnopqrstuvwxyz"
_ROLES: Final[tuple[ArgumentRole, ...]] = tuple(OPENS)
_EFFECTS: Final[tuple[ToolEffect | None, ...]] = tuple(DOES)


def reviewed(server: DescribedServer, talk: Dialogue) -> DescribedServer:
    """Return the server with the operator's changes to the proposal.

    Raises:
        ConfigurationError: the input ended; nothing was written.
    """
    kept: list[DescribedTool] = []
    rest = False
    for tool in (*server.tools, *(server.prompts or ())):
        one, rest = (tool, True) if rest else _one(tool, talk)
        kept.append(one)
    count = len(server.tools)
    prompts = None if server.prompts is None else tuple(kept[count:])
    return replace(server, tools=tuple(kept[:count]), prompts=prompts)


def _one(tool: DescribedTool, talk: Dialogue) -> tuple[DescribedTool, bool]:
    """Return one tool as the operator changed it, and whether all others are accepted."""
    while True:
        for line in shown_tool(tool):
            talk.say(line)
        effect = "" if tool.is_prompt else " change the effect (e),"
        key = talk.ask(f"accept (y), change an argument (c),{effect} accept all (a)",
                       ("y", "c", *(("e",) if effect else ()), "a"))  # fmt: skip
        match key:
            case "c" if tool.proposal.arguments:
                tool = _with_role(tool, talk)
            case "e":
                choice = _choose([f"{one or '?'}: {DOES[one]}" for one in _EFFECTS], talk)
                proposal = replace(tool.proposal, effect=_EFFECTS[choice], why="your word")
                tool = replace(tool, proposal=proposal)
            case _:
                return tool, key == "a"


def _with_role(tool: DescribedTool, talk: Dialogue) -> DescribedTool:
    names = [*tool.proposal.arguments]
    name = names[_choose([clean(one, 60) for one in names], talk)]
    role = _ROLES[_choose([f"{one}: {OPENS[one]}" for one in _ROLES], talk)]
    changed = {**tool.proposal.arguments, name: Proposed(roles=(role,), why="your word")}
    return replace(tool, proposal=replace(tool.proposal, arguments=changed))


def _choose(lines: list[str], talk: Dialogue) -> int:
    lines = lines[: len(_KEYS)]
    for key, line in zip(_KEYS, lines, strict=False):
        talk.say(f"  {key}  {line}")
    return _KEYS.index(talk.ask("which", tuple(_KEYS[: len(lines)])))
