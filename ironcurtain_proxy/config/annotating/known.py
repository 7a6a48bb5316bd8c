"""Tools that the shipped annotations describe, recognised by name and schema.

A name alone proves nothing: a tool `fetch` with other arguments is another tool.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import orjson

from ironcurtain_proxy.config.annotating.proposal import ToolKind
from ironcurtain_proxy.config.annotating.shell_tools import NO_TEXT, is_closed_choice, types_of
from ironcurtain_proxy.config.annotating.words import READS, words_of
from ironcurtain_proxy.config.policy.policy_files import ANNOTATIONS_NAME, POLICY_NAME, SHIPPED
from ironcurtain_proxy.model.json import Json

_LOOKS: Final = READS | {"convert", "echo"}
_ALWAYS_ALLOWED: Final = ("filesystem", "list_allowed_directories")
"""The tools that an invariant allows; no rule needs to name them."""
_ENOUGH: Final = 3
"""The number of common tools that identifies a known server, unless that server has fewer."""


@dataclass(frozen=True, slots=True)
class KnownTool:
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
