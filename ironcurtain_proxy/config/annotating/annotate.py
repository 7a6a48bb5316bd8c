"""Annotations of a server's tools, known or proposed: the roles of their arguments, and their kind.

Tools that the shipped annotations describe are recognised by name and schema. A name alone proves
nothing: a tool `fetch` with other arguments is another tool.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final, Literal, TypeAlias

import orjson
from msgspec import Struct

from ironcurtain_proxy.config.annotating.propose import propose
from ironcurtain_proxy.config.annotating.texts import (
    DESTROYS,
    FETCHES,
    LOCAL_PATHS,
    NO_TEXT,
    READS,
    WORDS,
    WRITES,
    Proposed,
    ProposedTool,
    ReadServer,
    ReadTool,
    ToolKind,
    is_closed_choice,
    runs,
    speaks_of_leaving,
    types_of,
    words_of,
)
from ironcurtain_proxy.config.policy.annotations_file import ANNOTATIONS_NAME
from ironcurtain_proxy.config.policy.policy_file import POLICY_NAME, SHIPPED
from ironcurtain_proxy.config.servers.recognition import Pack
from ironcurtain_proxy.config.servers.servers_file import OWN_SHELL
from ironcurtain_proxy.model.annotation import Roles, declared_arguments
from ironcurtain_proxy.model.values import Json, object_of

# --- known


_LOOKS: Final = READS | {"convert", "echo"}
_ALWAYS_ALLOWED: Final = ("filesystem", "list_allowed_directories")
"""The tools that an invariant allows; no rule needs to name them."""
_ENOUGH: Final = 3
"""The number of common tools that identifies a known server, unless that server has fewer."""


class KnownTool(Struct, frozen=True):
    """A tool as the shipped files describe it."""

    arguments: Mapping[str, Json]
    schema: Mapping[str, Json]
    is_allowed: bool
    """Whether a shipped rule allows it by name, because it affects nothing outside its server."""

    @property
    def roles(self) -> frozenset[str]:
        """Every role that an argument may have."""
        return frozenset[str]().union(*map(roles_in, self.arguments.values()))

    def kind(self, name: str) -> ToolKind:
        """Return the kind of the tool for presets."""
        roles = self.roles - {"none", "commit-message", "branch-name"}
        if roles <= {"read-path", "write-path", "delete-path", "write-history"} and roles:
            return "files"
        if roles == {"fetch-url"}:
            return "fetches"
        if roles or not self.is_allowed:
            return "unknown"
        return "looks" if not _LOOKS.isdisjoint(words_of(name)) else "keeps"


@cache
def known_servers() -> Mapping[str, Mapping[str, KnownTool]]:
    """Return the shipped annotations, by server and tool."""
    annotations = orjson.loads((SHIPPED / ANNOTATIONS_NAME).read_bytes())
    rules = orjson.loads((SHIPPED / POLICY_NAME).read_bytes())["rules"]
    allowed = {
        (server, tool)
        for rule in rules
        if rule["then"] == "allow"
        for server in rule["if"].get("server", ())
        for tool in rule["if"].get("tool", ())
    }
    return {
        server: {
            tool["toolName"]: KnownTool(
                tool["args"],
                tool["inputSchema"],
                (server, tool["toolName"]) in {*allowed, _ALWAYS_ALLOWED},
            )
            for tool in entry["tools"]
        }
        for server, entry in annotations["servers"].items()
    }


def known_server(tools: Sequence[Mapping[str, Json]], named: Iterable[str]) -> str | None:
    """Return the known server that offers these tools; None: the tools belong to another server.

    Args:
        tools: objects of `tools/list`.
        named: the server's name by its command or its operator.
    """
    for server, known in known_servers().items():
        fitting = [tool for tool in tools if fits(tool, known.get(str(tool.get("name"))))]
        least = 1 if server in named else min(_ENOUGH, len(known))
        others = [tool for tool in tools if str(tool.get("name")) not in known]
        is_other = bool(others) and server not in named
        if len(fitting) >= least and len(fitting) + len(others) == len(tools) and not is_other:
            return server
    return None


def fits(tool: Mapping[str, Json], known: KnownTool | None) -> bool:
    """Return whether a tool matches the annotated one: any additional arguments are plain."""
    if known is None:
        return False
    theirs, ours = properties_of(tool.get("inputSchema")), properties_of(dict(known.schema))
    if theirs is None or ours is None:
        return False
    for name, schema in theirs.items():
        mine = ours.get(name)
        if mine is None:
            if name not in known.arguments and not _only_says_how(schema):
                return False
        elif not _same_type(schema, mine):
            return False
    named = {name for name, roles in known.arguments.items() if roles_in(roles) - {"none"}}
    return named | _asked_of(known.arguments) <= theirs.keys()


def _asked_of(arguments: Mapping[str, Json]) -> set[str]:
    """Return the arguments that conditions of the annotations refer to. A fitting tool has them."""
    cases = [one.get("when") for one in arguments.values() if isinstance(one, Mapping)]
    conditions = [
        case.get("condition")
        for found in cases
        if isinstance(found, list)
        for case in found
        if isinstance(case, Mapping)
    ]
    return {str(one["arg"]) for one in conditions if isinstance(one, Mapping) and "arg" in one}


def properties_of(schema: Json) -> Mapping[str, Json] | None:
    """Return the arguments of an input schema, or None if it does not list them."""
    if not isinstance(schema, Mapping):
        return None
    found = schema.get("properties", {})
    odd = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties", "dependentSchemas", "if"}
    return found if isinstance(found, dict) and odd.isdisjoint(schema) else None


def _only_says_how(schema: Json) -> bool:
    """Return whether an argument has no text of its own to name something with."""
    if not isinstance(schema, Mapping) or not (types := types_of(schema)):
        return False
    return types <= NO_TEXT or is_closed_choice(schema)


def _same_type(left: Json, right: Json) -> bool:
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        return False
    return types_of(left) - {"null"} == types_of(right) - {"null"}


def roles_in(spec: Json) -> frozenset[str]:
    """Return every role of an argument as `tool-annotations.json` writes it."""
    if isinstance(spec, list):
        return frozenset([str(role) for role in spec])
    if not isinstance(spec, dict):
        return frozenset()
    cases, inside = spec.get("when"), spec.get("inside")
    listed = cases if isinstance(cases, list) else []
    roles = [case.get("roles") for case in listed if isinstance(case, dict)]
    members = inside.values() if isinstance(inside, dict) else ()
    return roles_in(spec.get("default")).union(*map(roles_in, (*roles, *members)))


# --- annotate


WORKING_DIRECTORIES: Final = frozenset(
    {"cwd", "workdir", "workDir", "working_dir", "workingDir"}
    | {"working_directory", "workingDirectory", "directory"}
)
"""The arguments that `facts.commands` takes for the working directory of a command."""

_MOST_TOOLS: Final = 500
_MOST_NAME: Final = 200
_MOST_SCHEMA: Final = 1 << 16
"""The size limit of a schema. A server must not fill the annotation file that all servers share."""
_SETTLED: Final = frozenset({"filesystem", "git"})
"""Servers whose paths in the workspace are settled before any rule. Unknown tools never get their
names."""

Meaning: TypeAlias = Literal["path", "url", "part", "plain", "unclear"]
"""The meaning of a text. `part`: a part of a file. `plain`: an option or content."""


def annotate(
    name: str,
    tools: Sequence[Mapping[str, Json]],
    recognised: str | None = None,
    pack: Pack | None = None,
    *,
    is_remote: bool = False,
) -> ReadServer:
    """Return the annotations of a server's tools.

    Args:
        name: the operator's name of the server.
        tools: objects of `tools/list`.
        recognised: the well-known server that its command starts.
        pack: the pack of the package that its command starts.
        is_remote: whether the server runs on another machine, whose files and commands are not
            those of this one.
    """
    readable = [tool for tool in tools[:_MOST_TOOLS] if can_be_written(tool)]
    if is_remote:
        return ReadServer(
            name=name,
            annotations=_as(name, None),
            tools=tuple([_elsewhere(tool) for tool in readable]),
            left_out=len(tools) - len(readable),
        )
    server = known_server(readable, {name} if recognised is None else {recognised})
    known = known_servers().get(server, {}) if server is not None else {}
    if server is None and pack is not None:
        return packed(name, readable, pack, left_out=len(tools) - len(readable))
    found = [_tool(tool, known.get(str(tool.get("name"))), server) for tool in readable]
    return ReadServer(
        name=name,
        annotations=_as(name, server),
        tools=tuple(found),
        left_out=len(tools) - len(readable),
    )


def packed(
    name: str, tools: Sequence[Mapping[str, Json]], pack: Pack, *, left_out: int = 0
) -> ReadServer:
    """Return the tools of a server by its pack.

    A tool that the pack lacks is annotated like any other.
    """
    found: list[ReadTool] = []
    for tool in tools:
        known = pack.tools.get(str(tool.get("name")))
        live = declared_arguments(tool.get("inputSchema") or {}).names
        arguments = known.get("args") if known is not None else None
        if known is None or not isinstance(arguments, dict) or not live.keys() <= arguments.keys():
            found.append(_tool(tool, None, None))
            continue
        schema = tool.get("inputSchema")
        effect = known.get("effect")
        kind = _packed_kind(arguments, effect, is_allowed=known["toolName"] in pack.allow)
        found.append(
            ReadTool(
                name=str(known["toolName"]),
                kind=kind,
                arguments={one: arguments[one] for one in live},
                schema=schema if isinstance(schema, dict) else {},
                command=_command_of(arguments) if kind == "shell" else None,
                changes=effect != "reads",
                why="" if kind != "unknown" else "its pack lists it as a tool to ask about",
                effect=str(effect) if effect else None,
                is_packed=True,
            )
        )
    return ReadServer(name=name, annotations=pack.name, tools=tuple(found), left_out=left_out)


def _packed_kind(arguments: Mapping[str, Json], effect: Json, *, is_allowed: bool) -> ToolKind:
    roles = frozenset([role for one in arguments.values() for role in roles_in(one)])
    if "command" in roles:
        return "shell"
    paths = frozenset([role for role in roles if role.endswith("-path")])
    # INVARIANT: what is given a file does not only look: no rule about its name allows a path.
    if is_allowed and paths:
        return "saves"
    # Rules about paths judge no upload of a file, and answer for no argument that is no path.
    if paths and roles <= {*paths, "none"} and effect not in {"sends", "runs"}:
        return "files"
    return "looks" if is_allowed else "unknown"


def _command_of(arguments: Mapping[str, Json]) -> str | None:
    return next((name for name, one in arguments.items() if "command" in roles_in(one)), None)


def can_be_written(tool: Mapping[str, Json]) -> bool:
    """Return whether a tool can be named in a configuration, and its schema stored in it.

    A name that no setting can hold would make the whole configuration unusable.
    """
    name = tool.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME or name != name.strip():
        return False
    try:
        return name.isprintable() and len(orjson.dumps(tool.get("inputSchema"))) <= _MOST_SCHEMA
    except TypeError:
        return False


def _as(name: str, server: str | None) -> str:
    if server is not None:
        return server
    # Rules, and what is settled without one, speak of the shipped servers by these names, and hooks
    # of a client's own shell.
    return f"{name}-server" if name in {*known_servers(), OWN_SHELL, "shell"} else name


def _tool(tool: Mapping[str, Json], known: KnownTool | None, server: str | None) -> ReadTool:
    name = str(tool.get("name", ""))
    held = object_of(tool.get("inputSchema"))
    if known is not None and fits(tool, known):
        names = properties_of(held) or {}
        arguments = {one: known.arguments.get(one, ["none"]) for one in names}
        changes = known.roles - {"none", "read-path", "fetch-url"}
        kind = known.kind(name)
        return ReadTool(
            name=name,
            kind=kind,
            arguments=arguments,
            schema=held,
            changes=bool(changes) or kind == "keeps",
            why="" if kind != "unknown" else "it reaches things that no argument names",
        )
    found = _unfamiliar(tool, name, held)
    if server not in _SETTLED or found.kind == "files":
        return found
    why = found.why or "this server is not known to have such a tool"
    return ReadTool(name=name, kind="unknown", arguments={}, schema=held, why=why, is_denied=True)


def _unfamiliar(tool: Mapping[str, Json], name: str, schema: dict[str, Json]) -> ReadTool:
    declared = declared_arguments(schema)
    properties = declared.names
    if not declared.is_list:
        why = "its input schema does not list its arguments"
        return _proposed(propose(tool), schema, why)
    command = runs(tool, properties)
    if command is not None:
        return _runner(name, schema, properties, command.argument if command.is_shell else None)
    proposal = propose(tool)
    kind, why = _kind(tool, proposal)
    if kind == "unknown":
        return _proposed(proposal, schema, why)
    paths = tuple([role for role in proposal.paths if not role.endswith("-history")])
    return ReadTool(
        name=name,
        kind=kind,
        arguments={one: _settled(one, said, paths) for one, said in proposal.arguments.items()},
        schema=schema,
        changes=kind == "files" and len(paths) > 1,
        why=why,
    )


def _elsewhere(tool: Mapping[str, Json]) -> ReadTool:
    """Return a tool of a server on another machine, to which all arguments leave."""
    schema = tool.get("inputSchema")
    why = "its arguments are sent to another machine"
    return _proposed(propose(tool).elsewhere(), schema if isinstance(schema, dict) else {}, why)


def _proposed(proposal: ProposedTool, schema: dict[str, Json], why: str) -> ReadTool:
    """Return an unexamined tool, which is asked about, with the roles that its names indicate."""
    return ReadTool(
        name=proposal.name,
        kind="unknown",
        arguments={one: proposed.as_json() for one, proposed in proposal.arguments.items()},
        schema=schema,
        why=why,
        # What is said to read may write: containment makes a point before each call.
        effect="writes" if proposal.effect == "reads" else proposal.effect,
    )


def _runner(
    name: str, schema: dict[str, Json], properties: Mapping[str, Json], command: str | None
) -> ReadTool:
    arguments: dict[str, Json] = {}
    for one in properties:
        if one in WORKING_DIRECTORIES:
            # Without such an argument the command runs in the server's own directory.
            arguments[one] = {
                "default": ["read-path"],
                "when": [{"condition": {"arg": one, "is": "falsy"}, "roles": ["none"]}],
            }
        else:
            arguments[one] = ["none"]
    return ReadTool(
        name=name,
        kind="unknown" if command is None else "shell",
        arguments=arguments,
        schema=schema,
        command=command,
        why="" if command else "it runs a text that may be no command of the local shell",
    )


def _kind(tool: Mapping[str, Json], proposal: ProposedTool) -> tuple[ToolKind, str]:
    told = [(one, _meanings(one, said)) for one, said in proposal.arguments.items()]
    kinds = frozenset[Meaning]().union(*[meanings for _, meanings in told])
    # Beside a path, a sheet is a part of that file. Without one it is the server's own.
    doubts = {"unclear"} if "path" in kinds else {"unclear", "part"}
    unclear = [one for one, meanings in told if meanings & doubts]
    if unclear:
        return "unknown", f"it is not clear what {_listed(unclear)} names"
    words = frozenset(words_of(proposal.name))
    text = str(tool.get("description", ""))
    if kinds <= {"plain"}:
        return "unknown", "no argument names what it reaches"
    if kinds <= {"plain", "url"}:
        if words & (FETCHES | READS) and not words & (WRITES | DESTROYS | WORDS["beyond"]):
            return "fetches", ""
        why = "it is not clear what it does with the URL"
    elif "url" in kinds or words & (WORDS["beyond"] | FETCHES) or speaks_of_leaving(text):
        why = "it may do more with a path than read or write it"
    elif not words & (READS | WRITES | DESTROYS):
        why = "its name does not say what it does with a path"
    else:
        return "files", ""
    return "unknown", why


def _meanings(name: str, proposed: Proposed) -> frozenset[Meaning]:
    """Return the meanings of an argument and of its members."""
    if not proposed.inside:
        return frozenset({_meaning(name, proposed)})
    # A member that the schema does not list counts as a path, but proves no path of the tool.
    is_open = proposed.certain and LOCAL_PATHS.union(("none", "unclear")).issuperset(proposed.roles)
    own: Meaning = "part" if is_open else "unclear"
    return frozenset({own}).union(*[_meanings(*one) for one in proposed.inside.items()])


def _meaning(name: str, proposed: Proposed) -> Meaning:
    words = [word for word in words_of(name) if word not in {"name", "names"}]
    last = words[-1] if words else ""
    if not proposed.certain:
        likely = "plain" if proposed.likely == "option" else proposed.likely
        return likely or "unclear" if last not in WORDS["targets"] else "unclear"
    match proposed.roles:
        case ("fetch-url",):
            return "url"
        case ("none",) | ("message",) if last not in WORDS["targets"]:
            return "plain"
        case ("identifier",) if last in WORDS["parts"]:
            return "part"
    return "path" if LOCAL_PATHS.issuperset(proposed.roles) else "unclear"


def _settled(name: str, proposed: Proposed, paths: Roles) -> Json:
    """Return the roles of an argument of a tool in which nothing is unclear."""
    if proposed.inside:
        inside = {one: _settled(one, inner, paths) for one, inner in proposed.inside.items()}
        return {"default": [*paths], "inside": inside}
    match _meaning(name, proposed):
        case "path":
            return [*paths]
        case "url":
            return ["fetch-url"]
        case _:
            return ["none"]


def _listed(names: Sequence[str]) -> str:
    return ", ".join([f'"{name[:60]}"' for name in names[:3]]) + (" …" if len(names) > 3 else "")  # noqa: PLR2004


def as_annotations(servers: Sequence[ReadServer]) -> dict[str, Json]:
    """Return the document `tool-annotations.json`.

    Servers with one annotation name share their tools.
    """
    document: dict[str, dict[str, Json]] = {}
    for server in servers:
        tools = document.setdefault(server.annotations, {})
        for tool in server.tools:
            if not tool.is_denied:
                entry = entry_of(tool.name, tool.arguments, tool.schema, tool.effect)
                tools.setdefault(tool.name, entry)
    return {
        "servers": {name: {"tools": [*tools.values()]} for name, tools in document.items() if tools}
    }


def entry_of(
    name: str, arguments: Mapping[str, Json], schema: Mapping[str, Json], effect: str | None
) -> dict[str, Json]:
    """Return a tool in `tool-annotations.json`."""
    entry: dict[str, Json] = {"toolName": name, "args": {**arguments}, "inputSchema": {**schema}}
    return entry if effect is None else {**entry, "effect": effect}
