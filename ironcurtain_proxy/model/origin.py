"""Where the target of a call comes from: who named it first, as far as the session has seen.

    Target("to", "kim@example.org", ("email-address",), InResult("web", "fetch", "evil.example", …))

An origin says who wrote a value, and nothing of what a text means: text that somebody else wrote
may ask for the right thing, and the user's words may be mistaken. It is a fact about one value, not
about the session: a session that has read a hostile page is no other session than before.
"""

from datetime import datetime
from typing import Final, Literal, TypeAlias, assert_never, get_args

from msgspec import Struct

from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole, ToolEffect

NamedBy: TypeAlias = Literal["user", "own", "result", "nobody"]
"""Who named a value. `user`: the user's last messages have it. `own`: the workspace or the user's
own records have it. `result`: another result of this session has it. `nobody`: none of these."""

NAMED_BY: Final[tuple[NamedBy, ...]] = get_args(NamedBy)
"""All of them, the one that speaks most for a value first."""


class ByUser(Struct, frozen=True):
    """One of the user's last messages has the value."""


class Own(Struct, frozen=True):
    """The value is the user's own: in the workspace, or in a result of the user's own records."""


class InResult(Struct, frozen=True):
    """A result of this session has the value whole."""

    server: str
    """The operator's name of the server whose result had it first."""
    tool: str
    about: str
    """The host or path that the call of that result named, or empty if there is none."""
    at: datetime
    """When the result came. Aware, UTC."""
    is_only: bool = True
    """Whether no later result has it, too."""


class ByNobody(Struct, frozen=True):
    """Neither the user nor a result has the value, as far as is remembered."""


TargetOrigin: TypeAlias = ByUser | Own | InResult | ByNobody


def named_by(origin: TargetOrigin) -> NamedBy:
    """Return who named a value, in one word."""
    match origin:
        case ByUser():
            return "user"
        case Own():
            return "own"
        case InResult():
            return "result"
        case ByNobody():
            return "nobody"
        case _:
            assert_never(origin)


class Target(Struct, frozen=True):
    """A value of a call that names a place, a thing or a person, with its origin."""

    argument: str
    text: str
    """The value as it is judged; of a text that people read, the link in it."""
    roles: tuple[ArgumentRole, ...]
    origin: TargetOrigin

    @property
    def named_by(self) -> NamedBy:
        """Who named it, in one word."""
        return named_by(self.origin)

    def reaches_out(self, effect: ToolEffect | None) -> bool:
        """Return whether the call does something to the target, or tells it something.

        A URL is told what stands in it, also where it is only read.
        """
        if _OUTWARD.intersection(self.roles):
            return True
        return effect != "reads" and any(role != "read-path" for role in self.roles)


TEXT_ROLES: Final[frozenset[ArgumentRole]] = frozenset({"email-body", "message"})
"""Texts that other people read: the links in them are targets."""

_OUTWARD: Final[frozenset[ArgumentRole]] = TEXT_ROLES.union(
    ("email-address",), [role for role, traits in ROLE_TRAITS.items() if traits.category == "url"]
)

TARGET_ROLES: Final[frozenset[ArgumentRole]] = TEXT_ROLES.union(
    ("email-address", "unclear"),
    [
        role
        for role, traits in ROLE_TRAITS.items()
        if traits.category in {"path", "url", "uri", "identifier"}
    ],
)
"""The roles whose values are targets."""
