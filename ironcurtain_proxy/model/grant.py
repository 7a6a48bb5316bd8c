"""A remembered approval, as a pattern.

A grant can only turn an escalation of its own tool into a forwarded call. It never speaks of a
denial, and is never read from what an agent or a server sent.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import NewType, TypeAlias

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.capability import Capability
from ironcurtain_proxy.model.family import Family
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath

GrantId = NewType("GrantId", str)
"""Ours, random."""


@dataclass(frozen=True, slots=True)
class WithinDirectory:
    """Every path of the role lies below one of the grant's directories for it.

    The directory itself is not meant: deleting a file is not deleting all of its neighbours.
    """

    role: ArgumentRole
    directory: RealPath


@dataclass(frozen=True, slots=True)
class OnHost:
    """Every URL of the role leads to one of the grant's places for it."""

    role: ArgumentRole
    domain: str
    """Of a URL `https://host`, with its port where that is not the scheme's own; of a git remote
    `host` or `host/path`."""


@dataclass(frozen=True, slots=True)
class ExactValue:
    """Every value of the role is one of the grant's values for it; names in lower case."""

    role: ArgumentRole
    value: str


@dataclass(frozen=True, slots=True)
class SameFlag:
    """An argument that changes what the call does (`force`, `recursive`, …) is as it was."""

    argument: str
    value: Json
    """None: the call that was approved did not have it."""


Constraint: TypeAlias = WithinDirectory | OnHost | ExactValue | SameFlag
"""One condition of a grant. Several on one role: each value needs one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that an approval may remember. A reviewer hands back one that was offered."""

    description: str
    """One line for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPattern(Candidate):
    """What "remember" would remember, shown to the reviewer before the answer."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition: a grant is void when the tool changes."""
    constraints: tuple[Constraint, ...]
    """Never empty: a call that names nothing is not grantable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPattern(Candidate):
    """A tool that the approval mode need not ask about again ("always allow")."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition, as above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityPattern(Candidate):
    """A capability that its profile need not ask about again."""

    capability: Capability


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPattern(Candidate):
    """Families of shell commands. A command is covered if each of its parts is."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition, as above."""
    workspace: RealPath
    """The project. Families of another one never count."""
    families: tuple[Family, ...]
    """General ones alone; empty: commands that only read."""
    phrases: tuple[str, ...]
    """The families in words, one for each; the description is all of them."""
    beside: tuple[SameFlag, ...] = ()
    """The arguments beside the command that may change what it does, as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPattern(Candidate):
    """The identical call, in this session."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition, as above."""
    digest: str
    """SHA-256 of the arguments and of what the disk said of the command."""


Pattern: TypeAlias = GrantPattern | ToolPattern | CapabilityPattern | FamilyPattern | CallPattern
"""Each discharges its own kind of origin, and no other: what the policy escalated is approved by a
`GrantPattern` alone; of a shell command, by families or as the identical call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A pattern that a reviewer chose to remember, or that follows from an approval."""

    id: GrantId
    pattern: Pattern
    created: datetime
    """Aware, UTC."""
    source: str
    """The escalation it came from."""
    reason: str
    """Why that call had escalated."""
    expires: datetime | None = None
    """None: with the session."""
