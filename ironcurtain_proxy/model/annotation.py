"""What the operator says of a tool's arguments.

Trusted, unlike a server's own hints (MCP `ToolAnnotations`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from ironcurtain_proxy.model.json import Arguments, Json

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
    "branch-name",
    "commit-message",
    "email-address",
    "email-body",
    "share-permission",
    "none",
]
"""What one argument names. Any other word stops the load."""

ToolEffect: TypeAlias = Literal["reads", "writes", "destroys", "sends", "runs"]
"""The worst that a tool does: only reads; changes files; deletes; reaches another machine; runs
programs."""

RoleCategory: TypeAlias = Literal["path", "url", "identifier", "opaque"]
"""How a value of the role is read. `opaque` is not read at all."""


@dataclass(frozen=True, slots=True)
class RoleTraits:
    """What holds for every argument of a role."""

    category: RoleCategory
    contained: bool = False
    """Lying in the workspace settles it (structural containment)."""

    @property
    def is_resource(self) -> bool:
        """Whether values of the role identify a resource, so that rules are asked about them."""
        return self.category != "opaque"


_CONTAINED_PATH: Final = RoleTraits("path", contained=True)
_URL: Final = RoleTraits("url")
_IDENTIFIER: Final = RoleTraits("identifier")
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
        "branch-name": _OPAQUE,
        "commit-message": _OPAQUE,
        "email-address": _OPAQUE,
        "email-body": _OPAQUE,
        "share-permission": _OPAQUE,
        "none": _OPAQUE,
    }
)

IGNORES_CASE: Final[frozenset[ArgumentRole]] = frozenset(
    {"github-owner", "github-repo", "proxy-domain", "email-address"}
)
"""Roles whose service takes `Acme` and `acme` for the same. Values of all others are compared
exactly: what a list allows must not grow by a capital letter."""

GRAVEST_FIRST: Final[tuple[ArgumentRole, ...]] = (
    *("delete-path", "delete-history", "write-history", "write-path"),
    *("git-remote-url", "fetch-url", "github-owner", "github-repo", "proxy-domain"),
    *("share-permission", "email-address", "email-body", "commit-message", "branch-name"),
    *("read-path", "none"),
)
"""Every role: what cannot be taken back before what can, what leaves this machine before what is
only looked at. The order in which people are told why they are asked."""

Presence: TypeAlias = Literal["present", "absent", "truthy", "falsy"]
"""What `is` may ask of an argument. Null counts as absent; `""`, 0 and false are falsy, but `[]`
and `{}` are truthy, as in the language the files were first written for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equals:
    """The argument is exactly this scalar; `True` is not 1."""

    argument: str
    value: Json

    def holds(self, arguments: Arguments) -> bool:
        """Whether it holds for a call with these arguments."""
        return self.argument in arguments and same_scalar(arguments[self.argument], self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf:
    """The argument is exactly one of these scalars."""

    argument: str
    values: tuple[Json, ...]

    def holds(self, arguments: Arguments) -> bool:
        """Whether it holds for a call with these arguments."""
        if self.argument not in arguments:
            return False
        given = arguments[self.argument]
        return any(same_scalar(given, value) for value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Is:
    """The argument is there, or not, or counts as true or false."""

    argument: str
    presence: Presence

    def holds(self, arguments: Arguments) -> bool:
        """Whether it holds for a call with these arguments."""
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
"""When a case of a role specification applies."""


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
    """Truth as the annotation format means it: containers are always true, NaN never is."""
    if isinstance(value, list | dict):
        return True
    return bool(value) and not (isinstance(value, float) and isnan(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCase:
    """Roles that apply when the condition holds."""

    condition: RoleCondition
    roles: tuple[ArgumentRole, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """The roles of one argument: the first case that holds, else `default`."""

    default: tuple[ArgumentRole, ...]
    cases: tuple[RoleCase, ...] = ()

    def roles(self, arguments: Arguments) -> tuple[ArgumentRole, ...]:
        """The roles the argument has in a call with these arguments."""
        for case in self.cases:
            if case.condition.holds(arguments):
                return case.roles
        return self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotation:
    """What the operator says of one tool: the roles of every argument, in file order."""

    server: str
    tool: str
    arguments: Mapping[str, RoleSpec]
    input_schema: Mapping[str, Json] = field(default_factory=dict)
    """The schema the annotation was made from; empty if the file has none."""
    comment: str = ""
    effect: ToolEffect | None = None
    """None: nothing is said of it."""

    def roles(self, arguments: Arguments) -> tuple[tuple[str, tuple[ArgumentRole, ...]], ...]:
        """Every annotated argument with the roles it has in this call, present or not."""
        return tuple([(name, spec.roles(arguments)) for name, spec in self.arguments.items()])


Annotations: TypeAlias = Mapping[tuple[str, str], ToolAnnotation]
"""By (server, tool). A tool that is not in it is not annotated: denied."""
