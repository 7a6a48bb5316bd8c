"""Grants: approvals that are remembered, as patterns of calls.

A grant can only turn an escalation of its own tool into a forwarded call. It never speaks of a
denial, and is never read from what an agent or a server sent.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import NewType, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.family import Family
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.opening import NOTHING_OPENED, SandboxOpening
from ironcurtain_proxy.model.path import RealPath

GrantId = NewType("GrantId", str)
"""Ours, random."""


class WithinDirectory(Struct, frozen=True):
    """Every path of the role lies below one of the grant's directories for it.

    The directory itself is not meant: deleting a file is not deleting all of its neighbours.
    """

    role: ArgumentRole
    directory: RealPath


class OnHost(Struct, frozen=True):
    """Every URL of the role leads to one of the grant's hosts for it."""

    role: ArgumentRole
    domain: str
    """The host: of a URL `https://host`, with its port if that is not the scheme's default; of a
    git remote `host` or `host/path`."""


class ExactValue(Struct, frozen=True):
    """Every value of the role equals one of the grant's values for it; names in lower case."""

    role: ArgumentRole
    value: str


class SameFlag(Struct, frozen=True):
    """An argument that changes what the call does (`force`, `recursive`, …) is unchanged."""

    argument: str
    value: Json
    """The value; None: the approved call did not have the argument."""


Constraint: TypeAlias = WithinDirectory | OnHost | ExactValue | SameFlag
"""One condition of a grant. Where several name one role, each value must satisfy one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A grant that an approval may create. Reviewers choose among the candidates offered."""

    description: str
    """One line for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPattern(Candidate):
    """The grant of calls of one tool whose arguments satisfy constraints."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition. A changed definition voids the grant."""
    constraints: tuple[Constraint, ...]
    """Never empty: a call without constrained arguments cannot be remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPattern(Candidate):
    """The grant of one tool towards the approval mode ("always allow")."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition. A changed definition voids the grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityPattern(Candidate):
    """The grant of one capability towards its profile."""

    capability: Capability


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPattern(Candidate):
    """The grant of families of shell commands. It covers a command if it covers each part."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition. A changed definition voids the grant."""
    workspace: RealPath
    """The workspace that the grant was given for."""
    families: tuple[Family, ...]
    """Families with `is_general` only; empty: commands that only read."""
    phrases: tuple[str, ...]
    """One phrase for each family; the description joins them."""
    beside: tuple[SameFlag, ...] = ()
    """The values of the other arguments that may change what the call does."""
    repository: RealPath | None = None
    """The `.git` directory that the workspace shared with other worktrees: there the families hold
    as well. None: in this workspace alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPattern(Candidate):
    """The grant of the identical call, or of a tool that nobody described, in this session."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition. A changed definition voids the grant."""
    digest: str | None
    """SHA-256 of the arguments and of the file contents that the command depends on. None: every
    call of the tool, as long as it has no annotation."""


Pattern: TypeAlias = GrantPattern | ToolPattern | CapabilityPattern | FamilyPattern | CallPattern
"""A grant's pattern. Each kind settles its own origin only: a `GrantPattern` settles an escalation
by the policy; of a shell command, families or the identical call do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A pattern that a reviewer chose to remember, or that follows from an approval."""

    id: GrantId
    pattern: Pattern
    created: datetime
    """Aware, UTC."""
    source: str
    """The escalation that the grant came from."""
    reason: str
    """The reason why that call was escalated."""
    expires: datetime | None = None
    """The expiry; None: the grant ends with the session."""
    opened: SandboxOpening = NOTHING_OPENED
    """The access beyond the sandbox that the question named: the grant covers no other."""
