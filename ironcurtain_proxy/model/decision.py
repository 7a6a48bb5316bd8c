"""The policy's answer, with what it rests on.

A decision is a value and is never edited: what a reviewer adds stands beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from ironcurtain_proxy.model.annotation import ArgumentRole

Effect: TypeAlias = Literal["allow", "escalate", "deny"]
"""The word of a decision."""

SEVERITY: Final[Mapping[Effect, int]] = MappingProxyType({"allow": 0, "escalate": 1, "deny": 2})
"""deny > escalate > allow: the most severe answer of several wins."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a decision rests on: the rule or invariant by name, and one sentence why."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may be forwarded."""

    ground: Ground


@dataclass(frozen=True, slots=True)
class Escalate:
    """The call may be forwarded if a reviewer approves."""

    ground: Ground
    roles: tuple[ArgumentRole, ...] = ()
    """Every argument role that escalated; empty when the rule was not about a role."""
    by_role: tuple[Ground, ...] = ()
    """What each of these roles rests on, in the same place; empty: all on `ground`."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call is not forwarded, whatever anyone says."""

    ground: Ground


Decision: TypeAlias = Allow | Escalate | Deny
"""The policy's answer."""


def effect_of(decision: Decision) -> Effect:
    """The word for a decision."""
    match decision:
        case Allow():
            return "allow"
        case Escalate():
            return "escalate"
        case Deny():
            return "deny"
        case _:
            assert_never(decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a person had settled beforehand of a call, besides the decision itself."""

    contained: frozenset[ArgumentRole] = frozenset()
    """The path roles that the workspace settles."""
    names_tool: bool = False
    """The call is allowed by rules, and every one of them names the tool."""
    names_roles: frozenset[ArgumentRole] = frozenset()
    """The roles that are allowed by rules each of which names that role, or the tool."""
