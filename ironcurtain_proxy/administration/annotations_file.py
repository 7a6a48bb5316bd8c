"""`tool-annotations.json`: what the operator says of every tool's arguments, read strictly."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Discriminator, Field, Tag

from ironcurtain_proxy.administration.problems import Report, nearest, shown
from ironcurtain_proxy.administration.reading import describe, parse, read_file
from ironcurtain_proxy.administration.shapes import Given, Place, Shape, read_shape
from ironcurtain_proxy.model.annotation import (
    Annotations,
    ArgumentRole,
    Equals,
    Is,
    OneOf,
    Presence,
    RoleCase,
    RoleCondition,
    RoleSpec,
    ToolAnnotation,
)
from ironcurtain_proxy.model.json import Json

_OPERATORS = ("equals", "in", "is")
_NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]


class _ConditionShape(Shape):
    arg: _NonEmpty
    equals: object = None
    one_of: Given[list[object]] = Field(None, alias="in")
    presence: Given[Presence] = Field(None, alias="is")


class _CaseShape(Shape):
    condition: _ConditionShape
    roles: list[ArgumentRole]


class _SpecShape(Shape):
    default: list[ArgumentRole]
    when: list[_CaseShape] = Field(default_factory=list)


def _form(value: object) -> str:
    return "list" if isinstance(value, list) else "object"


_RolesShape: TypeAlias = Annotated[
    Annotated[list[ArgumentRole], Tag("list")] | Annotated[_SpecShape, Tag("object")],
    Discriminator(_form),
]


class _ToolShape(Shape):
    tool_name: _NonEmpty
    server_name: str = ""
    comment: str = ""
    args: dict[str, _RolesShape]
    input_schema: dict[str, object] = Field(default_factory=dict)


class _ServerShape(Shape):
    input_hash: str = ""
    tools: list[object]


class _AnnotationsShape(Shape):
    generated_at: str = ""
    servers: dict[str, _ServerShape]


@dataclass(frozen=True, slots=True)
class AnnotationsFile:
    """The annotations, and the bytes they were read from."""

    data: bytes
    annotations: Annotations
    servers: frozenset[str]
    """Every server the file speaks of, also one without tools."""


def read_annotations_file(path: Path, report: Report) -> AnnotationsFile | None:
    """Read a file of annotations, or None with the reasons in the report."""
    data = read_file(path, report)
    return None if data is None else parse_annotations(data, path, report)


def parse_annotations(data: bytes, source: object, report: Report) -> AnnotationsFile | None:
    """The same from bytes; a YAML file is not expected here."""
    before = len(report.problems)
    document = parse(data, source, report)
    if len(report.problems) != before:
        return None
    file = read_shape(_AnnotationsShape, document, source, report)
    if file is None:
        return None
    annotations: dict[tuple[str, str], ToolAnnotation] = Field(default_factory=dict)
    for server, entry in file.servers.items():
        for index, raw in enumerate(entry.tools):
            place: Place = ("servers", server, "tools", index)
            shape = read_shape(_ToolShape, raw, source, report, place)
            if shape is None:
                continue
            if (server, shape.tool_name) in annotations:
                name = shown(shape.tool_name)
                report.error(source, (*place, "toolName"), f"{name} is annotated twice")
            builder = _ToolBuilder(server, source, place, report)
            annotations[server, shape.tool_name] = builder.annotation(shape)
    return AnnotationsFile(data, annotations, frozenset(file.servers))


@dataclass(frozen=True, slots=True)
class _ToolBuilder:
    """Turns one annotation of the right shape into the kernel's form."""

    server: str
    source: object
    place: Place
    report: Report

    def annotation(self, shape: _ToolShape) -> ToolAnnotation:
        if shape.server_name and shape.server_name != self.server:
            self.report.warning(
                self.source,
                (*self.place, "serverName"),
                f"says another server than the {shown(self.server)} it stands under",
            )
        schema: dict[str, Json] = shape.input_schema  # type: ignore[assignment]  # parsed JSON
        return ToolAnnotation(
            server=self.server,
            tool=shape.tool_name,
            arguments={name: self._spec(name, roles, shape) for name, roles in shape.args.items()},
            input_schema=schema,
            comment=shape.comment,
        )

    def _spec(
        self, name: str, roles: list[ArgumentRole] | _SpecShape, shape: _ToolShape
    ) -> RoleSpec:
        if isinstance(roles, list):
            return RoleSpec(default=tuple(roles))
        cases: list[RoleCase] = []
        for index, case in enumerate(roles.when):
            place = (*self.place, "args", name, "when", index, "condition")
            if case.condition.arg not in shape.args:
                self.report.error(
                    self.source,
                    (*place, "arg"),
                    f"{shown(case.condition.arg)} is not an argument of this tool",
                    nearest(case.condition.arg, shape.args),
                )
            condition = self._condition(case.condition, place)
            if condition is not None:
                cases.append(RoleCase(condition=condition, roles=tuple(case.roles)))
        return RoleSpec(default=tuple(roles.default), cases=tuple(cases))

    def _condition(self, shape: _ConditionShape, place: Place) -> RoleCondition | None:
        given = shape.model_fields_set - {"arg"}
        if len(given) != 1:
            words = ", ".join(_OPERATORS)
            self.report.error(self.source, place, f"must have exactly one of {words}")
            return None
        if "equals" in given:
            return Equals(argument=shape.arg, value=self._scalar(shape.equals, (*place, "equals")))
        if shape.one_of is not None:
            values = [self._scalar(v, (*place, "in", i)) for i, v in enumerate(shape.one_of)]
            return OneOf(argument=shape.arg, values=tuple(values))
        return None if shape.presence is None else Is(argument=shape.arg, presence=shape.presence)

    def _scalar(self, value: object, place: Place) -> Json:
        if value is None or isinstance(value, str | bool | int | float):
            return value
        self.report.error(self.source, place, f"{describe(value)} equals nothing")
        return None
