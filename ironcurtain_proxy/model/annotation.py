"""The operator's annotations of a tool: what its arguments name and what the tool does.

Trusted, unlike a server's own hints (MCP `ToolAnnotations`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from msgspec import Struct

from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.operation import TOOL_CALL, Method

ArgumentRole: TypeAlias = Literal[
    "read-path",
    "write-path",
    "delete-path",
    "write-history",
    "delete-history",
    "fetch-url",
    "git-remote-url",
    "github-owner",
    "github-repo",
    "proxy-domain",
    "resource-uri",
    "branch-name",
    "commit-message",
    "email-address",
    "email-body",
    "share-permission",
    "sql",
    "command",
    "message",
    "identifier",
    "unclear",
    "none",
]
"""The kind of thing that one argument names. A file with any other word is not loaded.

`sql`: statements for a database. `command`: a command of the local shell. `message`: a text that
other people will read. `identifier`: a thing of the server's own service, by name or number.
`unclear`: nobody could say; every text that looks like a path or a URL is read as one.
"""

Roles: TypeAlias = tuple[ArgumentRole, ...]
"""The roles of one argument; the first decides how its values are read."""

ToolEffect: TypeAlias = Literal["reads", "writes", "destroys", "sends", "runs"]
"""The gravest effect of a tool: it only reads; changes files; deletes; reaches another machine;
runs programs."""

RoleCategory: TypeAlias = Literal[
    "path", "url", "uri", "identifier", "sql", "command", "unclear", "opaque"
]
"""The way in which the values of a role are read. Values of an `opaque` role are not read at all; a
`uri` is read as a path or a URL where its scheme says so."""


class RoleTraits(Struct, frozen=True):
    """Properties that every argument of a role shares."""

    category: RoleCategory
    contained: bool = False
    """A value inside the workspace needs no rule of its own (structural containment)."""


_CONTAINED_PATH: Final = RoleTraits("path", contained=True)
_URL: Final = RoleTraits("url")
_IDENTIFIER: Final = RoleTraits("identifier")
_URI: Final = RoleTraits("uri")
_OPAQUE: Final = RoleTraits("opaque")

ROLE_TRAITS: Final[Mapping[ArgumentRole, RoleTraits]] = MappingProxyType(
    {
        "read-path": _CONTAINED_PATH,
        "write-path": _CONTAINED_PATH,
        "delete-path": _CONTAINED_PATH,
        "write-history": _CONTAINED_PATH,
        "delete-history": _CONTAINED_PATH,
        "fetch-url": _URL,
        "git-remote-url": _URL,
        "github-owner": _IDENTIFIER,
        "github-repo": _IDENTIFIER,
        "proxy-domain": _IDENTIFIER,
        "resource-uri": _URI,
        "branch-name": _OPAQUE,
        "commit-message": _OPAQUE,
        "email-address": _OPAQUE,
        "email-body": _OPAQUE,
        "share-permission": _OPAQUE,
        "sql": RoleTraits("sql"),
        "command": RoleTraits("command"),
        "message": _OPAQUE,
        "identifier": _IDENTIFIER,
        "unclear": RoleTraits("unclear"),
        "none": _OPAQUE,
    }
)

RESOURCE_ROLES: Final[frozenset[ArgumentRole]] = frozenset(
    [role for role, traits in ROLE_TRAITS.items() if traits.category != "opaque"]
)
"""Roles whose values identify a resource, so that rules are asked about them."""

IGNORES_CASE: Final[frozenset[ArgumentRole]] = frozenset(
    {"github-owner", "github-repo", "proxy-domain", "email-address"}
)
"""Roles whose service treats `Acme` and `acme` as the same name. Values of all other roles are
compared exactly, so that an allowlist never covers a name that differs in case."""

GRAVEST_FIRST: Final[tuple[ArgumentRole, ...]] = (
    *("command", "sql", "unclear"),
    *("delete-path", "delete-history", "write-history", "write-path"),
    *("git-remote-url", "fetch-url", "github-owner", "github-repo", "proxy-domain", "identifier"),
    "resource-uri",
    *("share-permission", "email-address", "email-body", "message"),
    *("commit-message", "branch-name", "read-path", "none"),
)
"""All roles, gravest first: irreversible effects before reversible ones, effects outside this
machine before reads. Reasons for a question are listed to people in this order."""

Presence: TypeAlias = Literal["present", "absent", "truthy", "falsy"]
"""The words that an `is` condition takes. Null counts as absent. `""`, 0 and false are falsy; `[]`
and `{}` are truthy, as in JavaScript, for which the file format was first defined."""


class Equals(Struct, frozen=True, kw_only=True):
    """The argument is exactly this scalar; `True` is not 1."""

    argument: str
    value: Json

    def holds(self, arguments: Arguments) -> bool:
        """Whether the condition holds for a call with these arguments."""
        return self.argument in arguments and same_scalar(arguments[self.argument], self.value)


class OneOf(Struct, frozen=True, kw_only=True):
    """The argument is exactly one of these scalars."""

    argument: str
    values: tuple[Json, ...]

    def holds(self, arguments: Arguments) -> bool:
        """Whether the condition holds for a call with these arguments."""
        if self.argument not in arguments:
            return False
        given = arguments[self.argument]
        return any(same_scalar(given, value) for value in self.values)


class Is(Struct, frozen=True, kw_only=True):
    """The argument is present, absent, truthy or falsy."""

    argument: str
    presence: Presence

    def holds(self, arguments: Arguments) -> bool:
        """Whether the condition holds for a call with these arguments."""
        value = arguments.get(self.argument)
        match self.presence:
            case "present":
                return value is not None
            case "absent":
                return value is None
            case "truthy":
                return is_truthy(value)
            case "falsy":
                return not is_truthy(value)
            case _:
                assert_never(self.presence)


RoleCondition: TypeAlias = Equals | OneOf | Is
"""The condition of a case of a role specification."""


def same_scalar(left: Json, right: Json) -> bool:
    """Strict equality of JSON scalars; arrays and objects equal nothing."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return left is None and right is None


def is_truthy(value: Json) -> bool:
    """Truth as the annotation format defines it: containers are always true, NaN is false."""
    if isinstance(value, list | dict):
        return True
    return bool(value) and not (isinstance(value, float) and isnan(value))


class RoleCase(Struct, frozen=True, kw_only=True):
    """Roles that apply when the condition holds."""

    condition: RoleCondition
    roles: tuple[ArgumentRole, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """The roles of one argument: the first case that holds, else `default`."""

    default: tuple[ArgumentRole, ...]
    cases: tuple[RoleCase, ...] = ()
    inside: Mapping[str, "RoleSpec"] = field(default_factory=dict)
    """The roles of the members of an object, or of objects in a list, by name. Every other text in
    the argument has the roles above."""

    def every_role(self) -> frozenset[ArgumentRole]:
        """The roles over all cases and all members."""
        found = {*self.default, *[role for case in self.cases for role in case.roles]}
        return frozenset(found).union(*[spec.every_role() for spec in self.inside.values()])

    def roles(self, arguments: Arguments) -> tuple[ArgumentRole, ...]:
        """The roles the argument has in a call with these arguments."""
        for case in self.cases:
            if case.condition.holds(arguments):
                return case.roles
        return self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotation:
    """The operator's annotation of one tool: the roles of each argument, in file order."""

    server: str
    tool: str
    arguments: Mapping[str, RoleSpec]
    input_schema: Mapping[str, Json] = field(default_factory=dict)
    """The schema that the annotation was made from; empty if the file has none."""
    comment: str = ""
    effect: ToolEffect | None = None
    """The effect; None: the annotation names no effect."""
    method: Method = TOOL_CALL
    """Another method: the annotation is of a prompt, or of a resource."""

    def roles(self, arguments: Arguments) -> tuple[tuple[str, tuple[ArgumentRole, ...]], ...]:
        """Every annotated argument with the roles it has in this call, present or not."""
        return tuple([(name, spec.roles(arguments)) for name, spec in self.arguments.items()])


Annotations: TypeAlias = Mapping[tuple[str, str], ToolAnnotation]
"""Annotations by (server, tool), or of prompts by (server, prompt). What is missing here is not
annotated, and is denied."""
