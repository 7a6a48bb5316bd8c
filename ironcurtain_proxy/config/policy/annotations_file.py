"""`tool-annotations.json`: the operator's annotations of all tools, read strictly."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, Union  # noqa: TID251  schemas and compared values

from msgspec import UNSET, Struct, field

from ironcurtain_proxy.config.reading.document import Report, nearest, shown
from ironcurtain_proxy.config.reading.forms import (
    CheckedForm,
    Document,
    Form,
    FormMistake,
    Maybe,
    NameText,
    read_form,
)
from ironcurtain_proxy.model.annotation import (
    Annotations,
    Equals,
    Is,
    OneOf,
    Presence,
    RoleCase,
    RoleCondition,
    Roles,
    RoleSpec,
    ToolAnnotation,
    ToolEffect,
)
from ironcurtain_proxy.model.operation import label

ANNOTATIONS_NAME: Final = "tool-annotations.json"
_MOST_DEPTH: Final = 16
"""Levels of `inside`."""
_NOT_COMPARED: Final = "must be text, a number, true, false or null: nothing else is compared"

RolesForm: TypeAlias = Union[Roles, "RoleObjectForm"]
"""The roles of one argument: a list, or an object where they depend on something."""


class ConditionForm(CheckedForm, frozen=True, kw_only=True):
    """A condition on another argument of the same call: one of `equals`, `in` and `is`."""

    arg: NameText
    """The name of the other argument."""
    equals: Any = UNSET
    in_: Maybe[tuple[Any, ...]] = field(name="in", default=UNSET)
    is_: Maybe[Presence] = field(name="is", default=UNSET)

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield what is compared and cannot be, and anything but one comparison."""
        if [self.equals, self.in_, self.is_].count(UNSET) != 2:  # noqa: PLR2004  of three
            yield (), "must have exactly one of equals, in, is", ""
        if isinstance(self.equals, list | dict):
            yield ("equals",), _NOT_COMPARED, ""
        for index, value in enumerate(self.in_ or ()):
            if isinstance(value, list | dict):
                yield ("in", index), _NOT_COMPARED, ""

    def condition(self) -> RoleCondition:
        """Return the condition."""
        if self.in_ is not UNSET:
            return OneOf(argument=self.arg, values=self.in_)
        if self.is_ is not UNSET:
            return Is(argument=self.arg, presence=self.is_)
        return Equals(argument=self.arg, value=None if self.equals is UNSET else self.equals)


class CaseForm(Form, frozen=True, kw_only=True):
    """The roles that hold where a condition does."""

    condition: ConditionForm
    roles: Roles


class RoleObjectForm(Form, frozen=True, kw_only=True):
    """Roles that depend on other arguments, or on the members of an object."""

    default: Roles
    """The roles where no case holds."""
    when: tuple[CaseForm, ...] = ()
    inside: Maybe[dict[str, RolesForm]] = UNSET
    """The roles of the members of an object, by name."""


class _ArgumentsForm(CheckedForm, frozen=True, kw_only=True):
    """What tools and prompts have in common."""

    server_name: str = ""
    comment: str = ""
    args: dict[str, RolesForm]
    """The roles of each argument."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield the mistakes of roles that depend on something."""
        for name, roles in self.args.items():
            yield from _role_mistakes(roles, ("args", name), tuple(self.args))

    def arguments(self) -> Mapping[str, RoleSpec]:
        """Return the roles by argument."""
        return {name: _spec(roles) for name, roles in self.args.items()}


class AnnotatedPromptForm(_ArgumentsForm, frozen=True, kw_only=True):
    """The annotation of one prompt."""

    prompt_name: NameText


class AnnotatedToolForm(_ArgumentsForm, frozen=True, kw_only=True):
    """The annotation of one tool."""

    tool_name: NameText
    input_schema: dict[str, Any] = field(default_factory=dict)
    """The JSON Schema of its arguments."""
    effect: Maybe[ToolEffect] = UNSET
    """What the tool does at most."""


class ServerToolsForm(CheckedForm, frozen=True, kw_only=True):
    """The annotations of one server."""

    input_hash: Any = None
    tools: tuple[AnnotatedToolForm, ...]
    prompts: tuple[AnnotatedPromptForm, ...] = ()

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield tools and prompts that are annotated twice."""
        yield from _twice("tools", "toolName", [one.tool_name for one in self.tools])
        yield from _twice("prompts", "promptName", [one.prompt_name for one in self.prompts])


class AnnotationsForm(Document, frozen=True, kw_only=True):
    """The annotations of all tools."""

    generated_at: Any = None
    pack: Any = None
    """Written by packs of annotations."""
    servers: dict[str, ServerToolsForm]
    """The annotations of each server, by its name."""


class AnnotationsFile(Struct, frozen=True):
    """The annotations, and the bytes they were read from."""

    data: bytes
    annotations: Annotations
    prompts: Annotations
    """The annotations of prompts, by server and prompt."""
    servers: frozenset[str]
    """Every server in the file, including those without tools."""


def read_annotations_file(path: Path, report: Report) -> AnnotationsFile | None:
    """Read a file of annotations, or return None with the reason in the report."""
    read = read_form(path, AnnotationsForm, report)
    if read is None:
        return None
    data, form, node = read
    annotations: dict[tuple[str, str], ToolAnnotation] = {}
    prompts: dict[tuple[str, str], ToolAnnotation] = {}
    for server, listed in form.servers.items():
        for index, tool in enumerate(listed.tools):
            if tool.server_name not in {"", server}:
                node.at("servers", server, "tools", index, "serverName").warning(
                    f"names another server than {shown(server)}, under which it is listed"
                )
            annotations[server, tool.tool_name] = ToolAnnotation(
                server=server,
                tool=tool.tool_name,
                arguments=tool.arguments(),
                input_schema=tool.input_schema,
                comment=tool.comment,
                effect=tool.effect or None,
            )
        for prompt in listed.prompts:
            prompts[server, prompt.prompt_name] = ToolAnnotation(
                server=server,
                tool=label("prompts/get", prompt.prompt_name),
                arguments=prompt.arguments(),
                comment=prompt.comment,
                method="prompts/get",
            )
    return AnnotationsFile(data, annotations, prompts, frozenset(form.servers))


def _twice(key: str, name_key: str, names: list[str]) -> Iterator[FormMistake]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield (key, index, name_key), f"{shown(name)} is annotated twice", ""


def _role_mistakes(
    roles: RolesForm, place: tuple[str | int, ...], arguments: tuple[str, ...], depth: int = 0
) -> Iterator[FormMistake]:
    if not isinstance(roles, RoleObjectForm):
        return
    for index, case in enumerate(roles.when):
        name = case.condition.arg
        at = (*place, "when", index, "condition", "arg")
        if depth:
            yield (
                at[:-2],
                "is for arguments only: a member of an object always has the same roles",
                "",
            )
        elif name not in arguments:
            message = f"{shown(name)} is not an argument of this tool"
            yield at, message, nearest(name, arguments)
    if roles.inside is UNSET:
        return
    if roles.when or depth == _MOST_DEPTH:
        message = "cannot be combined with when" if roles.when else "is nested too deeply"
        yield (*place, "inside"), message, ""
        return
    for name, inner in roles.inside.items():
        yield from _role_mistakes(inner, (*place, "inside", name), arguments, depth + 1)


def _spec(roles: RolesForm) -> RoleSpec:
    if not isinstance(roles, RoleObjectForm):
        return RoleSpec(default=roles)
    return RoleSpec(
        default=roles.default,
        cases=tuple(
            [RoleCase(condition=one.condition.condition(), roles=one.roles) for one in roles.when]
        ),
        inside={name: _spec(inner) for name, inner in (roles.inside or {}).items()},
    )
