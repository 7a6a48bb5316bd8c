"""The policy's decision, with its grounds.

A decision is a value and is never edited: what a reviewer adds stands beside it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, assert_never

from msgspec import Struct

from ironcurtain_proxy.model.annotation import ArgumentRole

UNKNOWN_TOOL: Final = "structural-unknown-tool"
"""The rule of a ground that says that a tool has no annotation."""

Effect: TypeAlias = Literal["allow", "escalate", "deny"]
"""The effect of a decision as a word."""

SEVERITY: Final[Mapping[Effect, int]] = MappingProxyType({"allow": 0, "escalate": 1, "deny": 2})
"""The order of effects: deny > escalate > allow. The most severe of several decisions wins."""


class Ground(Struct, frozen=True):
    """The ground of a decision: the name of a rule or invariant, and a sentence of explanation."""

    rule: str
    reason: str


class Allow(Struct, frozen=True):
    """The call may be forwarded."""

    ground: Ground


class Escalate(Struct, frozen=True):
    """The call may be forwarded if a reviewer approves."""

    ground: Ground
    roles: tuple[ArgumentRole, ...] = ()
    """The argument roles that escalated; empty when the rule named no role."""
    by_role: tuple[Ground, ...] = ()
    """The ground of each of these roles, in the same order; empty: `ground` holds for all."""


class Deny(Struct, frozen=True):
    """The call is not forwarded. No approval can change that."""

    ground: Ground


Decision: TypeAlias = Allow | Escalate | Deny
"""A decision of the policy."""


def effect_of(decision: Decision) -> Effect:
    """The effect of a decision."""
    match decision:
        case Allow():
            return "allow"
        case Escalate():
            return "escalate"
        case Deny():
            return "deny"
        case _:
            assert_never(decision)


class PriorConsent(Struct, frozen=True, kw_only=True):
    """Earlier consent of a person to parts of a call, besides the decision itself."""

    contained: frozenset[ArgumentRole] = frozenset()
    """The path roles whose values all lie in the workspace."""
    names_tool: bool = False
    """Rules allow the call, and each of them names the tool."""
    names_roles: frozenset[ArgumentRole] = frozenset()
    """The roles that rules allow, where each of these rules names the role or the tool."""
