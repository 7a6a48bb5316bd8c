"""`tool-annotations.json`: the operator's annotations of all tools, read strictly."""

from pathlib import Path
from typing import Final, get_args

from msgspec import Struct

from ironcurtain_proxy.config.reading.document import Members, Spot
from ironcurtain_proxy.config.reading.problems import Report, nearest, shown
from ironcurtain_proxy.config.reading.reading import read_document
from ironcurtain_proxy.model.annotation import (
    Annotations,
    Equals,
    Is,
    OneOf,
    Presence,
    RoleCase,
    RoleCondition,
    RoleSpec,
    ToolAnnotation,
    ToolEffect,
)
from ironcurtain_proxy.model.condition_reading import read_role as role
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.operation import label

_FILE_KEYS: Final = ("generatedAt", "pack", "servers")
_SERVER_KEYS: Final = ("inputHash", "tools", "prompts")
_PROMPT_KEYS: Final = ("promptName", "serverName", "comment", "args")
_TOOL_KEYS: Final = ("toolName", "serverName", "comment", "args", "inputSchema", "effect")
_EFFECTS: Final[tuple[ToolEffect, ...]] = get_args(ToolEffect)
_OPERATORS: Final = ("equals", "in", "is")
_MOST_DEPTH: Final = 16
"""Levels of `inside`."""
_PRESENCES: Final[tuple[Presence, ...]] = get_args(Presence)


class AnnotationsFile(Struct, frozen=True):
    """The annotations, and the bytes they were read from."""

    data: bytes
    annotations: Annotations
    prompts: Annotations
    """The annotations of prompts, by server and prompt."""
    servers: frozenset[str]
    """Every server in the file, including those without tools."""


def read_annotations_file(path: Path, report: Report) -> AnnotationsFile | None:
    """Read a file of annotations, or None with the reason in the report."""
    read = read_document(path, report)
    if read is None:
        return None
    data, root = read
    servers = root.object(_FILE_KEYS).required("servers").members()
    annotations: dict[tuple[str, str], ToolAnnotation] = {}
    prompts: dict[tuple[str, str], ToolAnnotation] = {}
    for server, spot in servers.items():
        members = spot.object(_SERVER_KEYS)
        for tool in members.required("tools").items():
            annotation = _annotation(server, tool)
            if (server, annotation.tool) in annotations:
                tool.inner("toolName", None).error(f"{shown(annotation.tool)} is annotated twice")
            annotations[server, annotation.tool] = annotation
        for prompt in members.read("prompts", Spot.items, []):
            name, annotation = _prompt(server, prompt)
            if (server, name) in prompts:
                prompt.inner("promptName", None).error(f"{shown(name)} is annotated twice")
            prompts[server, name] = annotation
    return AnnotationsFile(data, annotations, prompts, frozenset(servers))


def _prompt(server: str, spot: Spot) -> tuple[str, ToolAnnotation]:
    """The name of a prompt, and the roles of its arguments."""
    members = spot.object(_PROMPT_KEYS)
    name = members.required("promptName").name()
    arguments = members.required("args").members()
    return name, ToolAnnotation(
        server=server,
        tool=label("prompts/get", name),
        arguments={one: _spec(roles, tuple(arguments)) for one, roles in arguments.items()},
        comment=members.read("comment", Spot.text, ""),
        method="prompts/get",
    )


def _annotation(server: str, spot: Spot) -> ToolAnnotation:
    members = spot.object(_TOOL_KEYS)
    named = members.get("serverName")
    if named is not None and named.text() not in {"", server}:
        named.warning(f"names another server than {shown(server)}, under which it is listed")
    arguments = members.required("args").members()
    schema = members.get("inputSchema")
    if schema is not None:
        schema.members()  # an object, of any shape
    return ToolAnnotation(
        server=server,
        tool=members.required("toolName").name(),
        arguments={name: _spec(roles, tuple(arguments)) for name, roles in arguments.items()},
        input_schema=schema.value if schema and isinstance(schema.value, dict) else {},
        comment=members.read("comment", Spot.text, ""),
        effect=members.read("effect", lambda spot: spot.word(_EFFECTS), None),
    )


def _spec(spot: Spot, arguments: tuple[str, ...], depth: int = _MOST_DEPTH) -> RoleSpec:
    if isinstance(spot.value, list):
        return RoleSpec(default=spot.each(role))
    if not isinstance(spot.value, dict):
        spot.error("must be a list of roles, or an object with default, when and inside")
        return RoleSpec(default=())
    members = spot.object(("default", "when", "inside"))
    cases: list[RoleCase] = []
    for item in members.read("when", Spot.items, []):
        case = item.object(("condition", "roles"))
        condition = _condition(case.required("condition"), arguments)
        case_roles = case.required("roles").each(role)
        if condition is not None:
            cases.append(RoleCase(condition=condition, roles=case_roles))
    inside = members.get("inside")
    if inside is not None and (cases or depth == 0):
        inside.error("cannot be combined with when" if cases else "is nested too deeply")
        inside = None
    return RoleSpec(
        default=members.required("default").each(role),
        cases=tuple(cases),
        inside={} if inside is None else _inside(inside, depth - 1),
    )


def _inside(spot: Spot, depth: int) -> dict[str, RoleSpec]:
    members: dict[str, RoleSpec] = {}
    for name, inner in spot.members().items():
        spec = _spec(inner, (), depth)
        if spec.cases:
            inner.error(
                "when is for arguments only: a member of an object always has the same roles"
            )
        members[name] = spec
    return members


def _condition(spot: Spot, arguments: tuple[str, ...]) -> RoleCondition | None:
    members = spot.object(("arg", *_OPERATORS))
    argument = _argument(members, arguments)
    given = [members.required(word) for word in _OPERATORS if word in members]
    if len(given) != 1:
        if isinstance(spot.value, dict):
            spot.error(f"must have exactly one of {', '.join(_OPERATORS)}")
        return None
    match given[0].place[-1]:
        case "equals":
            return Equals(argument=argument, value=_scalar(given[0]))
        case "in":
            return OneOf(argument=argument, values=given[0].each(_scalar))
        case _:
            return Is(argument=argument, presence=given[0].word(_PRESENCES))


def _argument(members: Members, arguments: tuple[str, ...]) -> str:
    spot = members.required("arg")
    name = spot.name()
    if name not in arguments:
        spot.error(f"{shown(name)} is not an argument of this tool", nearest(name, arguments))
    return name


def _scalar(spot: Spot) -> Json:
    if isinstance(spot.value, list | dict):
        spot.error("must be text, a number, true, false or null: nothing else is compared")
    return spot.value
