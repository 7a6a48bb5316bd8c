"""The reading of each argument of a tool, by its annotation."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.facts.spelling import Refusal
from ironcurtain_proxy.model.annotation import (
    IGNORES_CASE,
    ROLE_TRAITS,
    ArgumentRole,
    RoleCategory,
    RoleSpec,
    ToolAnnotation,
)
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.request import ArgumentFact

ArgumentReading: TypeAlias = Literal[
    "path", "url", "git-remote", "uri", "identifier", "sql", "text", "anything", "deep"
]
"""The reading of an argument's strings. `text`: unchanged. `anything`: unchanged, and other values
beside them are ignored. `deep`: each by its place in the argument, or by its form; see
`facts.deep`."""

WORKING_DIRECTORY_ARGUMENTS: Final = (
    *("cwd", "workdir", "workDir", "working_dir", "workingDir"),
    *("working_directory", "workingDirectory"),
)
"""Arguments that name the directory of a command."""

NOT_A_STRING: Final = Refusal("must be a string or a list of strings, all the way down")


class PlannedArgument(Struct, frozen=True):
    """One annotated argument, with the reading that its roles ask for."""

    name: str
    roles: tuple[ArgumentRole, ...]
    reading: ArgumentReading
    absent: tuple[ArgumentFact, ...]
    """The facts of a call without the argument, made once."""
    spec: RoleSpec
    """The specification of the roles."""
    is_plain: bool
    """Whether a text is its own value, and is sent unchanged."""


class ToolPlan(Struct, frozen=True):
    """The reading of one tool's arguments."""

    fixed: tuple[PlannedArgument, ...] | None
    """The arguments in annotation order; None: a role depends on another argument."""
    specs: tuple[tuple[str, RoleSpec], ...]
    command: str | None
    """The argument that holds a shell command by the annotation; the first of several. Beside
    another text a command is not read: see `facts.commands`."""
    looked_up: tuple[PlannedArgument, ...] | None
    """The arguments of `fixed` that need the disk, git or a parser."""
    names_directory: bool
    """Whether an argument is the directory of a command."""

    def arguments(self, arguments: Arguments) -> tuple[PlannedArgument, ...]:
        """Every annotated argument, present or not, in annotation order.

        Conditions look at the arguments as the agent sent them.
        """
        if self.fixed is not None:
            return self.fixed
        return tuple([_planned(name, spec, spec.roles(arguments)) for name, spec in self.specs])

    def looking_up(self, arguments: Arguments) -> tuple[PlannedArgument, ...]:
        """The arguments among them that need the disk, git or a parser."""
        return _looked_up(self.arguments(arguments)) if self.looked_up is None else self.looked_up


def plan_for(annotation: ToolAnnotation) -> ToolPlan:
    """Compute the plan that all calls of the tool share."""
    specs = tuple(annotation.arguments.items())
    conditional = any(spec.cases for _, spec in specs)
    fixed = None
    if not conditional:
        fixed = tuple([_planned(name, spec, spec.default) for name, spec in specs])
    return ToolPlan(
        fixed=fixed,
        specs=specs,
        command=next((name for name, spec in specs if "command" in spec.every_role()), None),
        looked_up=None if fixed is None else _looked_up(fixed),
        names_directory=any(name in WORKING_DIRECTORY_ARGUMENTS for name, _ in specs),
    )


def _looked_up(arguments: tuple[PlannedArgument, ...]) -> tuple[PlannedArgument, ...]:
    return tuple([one for one in arguments if one.reading in _LOOKED_UP])


_LOOKED_UP: Final[frozenset[ArgumentReading]] = frozenset({"path", "git-remote", "sql", "deep"})
_PLAIN: Final[frozenset[ArgumentReading]] = frozenset({"uri", "identifier", "text", "anything"})


_READINGS: Final[Mapping[RoleCategory, ArgumentReading]] = MappingProxyType(
    {
        "path": "path",
        "url": "url",
        "uri": "uri",
        "identifier": "identifier",
        "sql": "sql",
        "command": "text",
    }
)


def reading_of(roles: tuple[ArgumentRole, ...]) -> ArgumentReading:
    """The reading of an argument: its first role that names a resource decides."""
    if "unclear" in roles:
        return "deep"
    for role in roles:
        if role == "git-remote-url":
            return "git-remote"
        reading = _READINGS.get(ROLE_TRAITS[role].category)
        if reading is not None:
            return reading
    return "anything" if all(role == "none" for role in roles) else "text"


def strings_of(value: Json, reading: ArgumentReading) -> tuple[str, ...] | Refusal:
    """The strings of an argument, in order: itself, or the items of a list.

    An item that is no string could name anything and would be sent all the same. A top-level
    value that is no string names nothing to the rules; `is_no_text` finds those that are refused.
    """
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        return ()
    strings = tuple([item for item in value if isinstance(item, str)])
    if len(strings) == len(value) or reading == "anything":
        return strings
    # A list of objects in an opaque role names nothing that a rule could have allowed; but next to
    # strings that a rule allowed, it would ride along.
    if reading == "text" and not strings:
        return ()
    return NOT_A_STRING


def is_no_text(value: Json, reading: ArgumentReading) -> bool:
    """Return whether a value stands for a text, and is none.

    Servers convert it: an object in the place of a path or a name could hold any, and a number in
    the place of a path is a file. A schema need not refuse it. A switch is neither.
    """
    if isinstance(value, dict):
        return reading not in {"text", "anything", "deep"}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and reading in {"path", "url", "uri", "sql"}


def _planned(name: str, spec: RoleSpec, roles: tuple[ArgumentRole, ...]) -> PlannedArgument:
    reading = "deep" if spec.inside else reading_of(roles)
    # Omitted members count, because the server may fill them in.
    every = dict.fromkeys([roles, *_roles_inside(spec)])
    absent = tuple([ArgumentFact(name, one, ()) for one in every])
    folded = reading == "identifier" and not IGNORES_CASE.isdisjoint(roles)
    return PlannedArgument(
        name, roles, reading, absent, spec, is_plain=reading in _PLAIN and not folded
    )


def _roles_inside(spec: RoleSpec) -> list[tuple[ArgumentRole, ...]]:
    return [
        roles for inner in spec.inside.values() for roles in (inner.default, *_roles_inside(inner))
    ]
