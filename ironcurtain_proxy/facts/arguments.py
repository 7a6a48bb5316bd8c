"""Which argument of a call is read in which way.

This file knows annotations; it does not know how a path, a URL or a
remote is read.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.facts.spelling import Refusal
from ironcurtain_proxy.model.annotation import (
    ROLE_TRAITS,
    ArgumentRole,
    RoleSpec,
    ToolAnnotation,
)
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.request import ArgumentFact

ArgumentReading: TypeAlias = Literal["path", "url", "git-remote", "identifier", "text", "anything"]
"""How the strings of an argument are read. `text`: as they are. `anything`: as they are, and what
is no string beside them is nobody's concern."""

_NOT_A_STRING: Final = Refusal("must be a string or a list of strings, all the way down")


@dataclass(frozen=True, slots=True)
class PlannedArgument:
    """One annotated argument, with the reading that its roles ask for."""

    name: str
    roles: tuple[ArgumentRole, ...]
    reading: ArgumentReading
    absent: ArgumentFact
    """The fact for a call that does not have it, made once."""


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """How the arguments of one tool are read."""

    fixed: tuple[PlannedArgument, ...] | None
    """In annotation order, if no role depends on another argument."""
    specs: tuple[tuple[str, RoleSpec], ...]

    def arguments(self, arguments: Arguments) -> tuple[PlannedArgument, ...]:
        """Every annotated argument, present or not, in annotation order.

        Conditions look at the arguments as the agent sent them.
        """
        if self.fixed is not None:
            return self.fixed
        return tuple([_planned(name, spec.roles(arguments)) for name, spec in self.specs])


def plan_for(annotation: ToolAnnotation) -> ToolPlan:
    """Work out once what every call of the tool needs."""
    specs = tuple(annotation.arguments.items())
    conditional = any(spec.cases for _, spec in specs)
    return ToolPlan(
        None if conditional else tuple([_planned(name, spec.default) for name, spec in specs]),
        specs,
    )


def reading_of(roles: tuple[ArgumentRole, ...]) -> ArgumentReading:
    """The reading of an argument: its first role that names a resource decides."""
    for role in roles:
        match ROLE_TRAITS[role].category:
            case "path":
                return "path"
            case "url":
                return "git-remote" if role == "git-remote-url" else "url"
            case "identifier":
                return "identifier"
            case "opaque":
                continue
    return "anything" if all(role == "none" for role in roles) else "text"


def strings_of(value: Json, reading: ArgumentReading) -> tuple[str, ...] | Refusal:
    """The strings of an argument, in order: itself, or the items of a list.

    An item that is no string could name anything and would be sent all the same. A top-level
    value that is no string is for the schema to refuse; to the rules it names nothing.
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
    return _NOT_A_STRING


def _planned(name: str, roles: tuple[ArgumentRole, ...]) -> PlannedArgument:
    return PlannedArgument(name, roles, reading_of(roles), ArgumentFact(name, roles, ()))
