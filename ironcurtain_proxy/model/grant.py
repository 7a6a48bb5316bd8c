"""Grants: approvals that are remembered, as patterns of calls, and what one opens.

A grant can only turn an escalation of its own tool into a forwarded call. It never speaks of a
denial, and is never read from what an agent or a server sent. What was approved for one call beyond
its server's sandbox is a `SandboxOpening`.
"""

from datetime import datetime
from typing import ClassVar, Final, NewType, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.annotation import ArgumentRole, Capability
from ironcurtain_proxy.model.request import Family
from ironcurtain_proxy.model.values import Json, RealPath, WithNotes

# --- opening


class SandboxOpening(WithNotes, frozen=True, kw_only=True):
    """Hosts and paths that a second instance of a server may use for one call."""

    notes: ClassVar[frozenset[str]] = frozenset({"for_later"})

    hosts: tuple[str, ...] = ()
    paths: tuple[RealPath, ...] = ()
    """Paths that the call may write, create or delete."""
    reads: tuple[RealPath, ...] = ()
    """Credentials that the call's programs may read."""
    for_later: bool = False
    """Whether a remembered approval covers later calls, too."""

    def words(self) -> tuple[str, ...]:
        """Return all hosts and paths as text, for the record."""
        return (
            *[f"host {host}" for host in self.hosts],
            *[f"write {path}" for path in self.paths],
            *[f"read {path}" for path in self.reads],
        )

    def shown(self) -> tuple[str, ...]:
        """Return all hosts and paths for a person, with misleading hosts marked."""
        hosts = [f"host {shown_host(host)}" for host in self.hosts]
        return (*hosts, *self.words()[len(hosts) :])

    def names(self, other: "SandboxOpening | None") -> bool:
        """Return whether every host and path of another opening is part of this one."""
        return other is None or (
            {*self.hosts} >= {*other.hosts}
            and {*self.paths} >= {*other.paths}
            and {*self.reads} >= {*other.reads}
        )


OPENS: Final = "An approval opens for this call"
"""The line of a question that names the whole opening."""

NOTHING_OPENED: Final = SandboxOpening()

_PUNYCODE: Final = "xn--"


def shown_host(host: str) -> str:
    """Return a host for a person, marked if it may look like another one."""
    if host.isascii() and not any(one.startswith(_PUNYCODE) for one in host.lower().split(".")):
        return host
    try:
        looks = host.encode("ascii").decode("idna")
    except UnicodeError:
        looks = host
    return f"{host} (shown as {looks}: letters outside a to z, it may imitate another host)"


# --- grant


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
    """The value, or None if the approved call did not have the argument."""


Constraint: TypeAlias = WithinDirectory | OnHost | ExactValue | SameFlag
"""One condition of a grant. Where several name one role, each value must satisfy one of them."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A grant that an approval may create. Reviewers choose among the candidates offered."""

    description: str
    """One line for people."""


class GrantPattern(Candidate, frozen=True, kw_only=True):
    """The grant of calls of one tool whose arguments satisfy constraints."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition. A changed definition voids the grant."""
    constraints: tuple[Constraint, ...]
    """Never empty: a call without constrained arguments cannot be remembered."""
    parts: "tuple[GrantPattern, ...]" = ()
    """The patterns that are remembered in its place, one for each tool that the question names."""


class ToolPattern(Candidate, frozen=True, kw_only=True):
    """The grant of one tool towards the approval mode ("always allow")."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition. A changed definition voids the grant."""


class CapabilityPattern(Candidate, frozen=True, kw_only=True):
    """The grant of one capability towards its profile."""

    capability: Capability


class FamilyPattern(Candidate, frozen=True, kw_only=True):
    """The grant of families of shell commands. It covers a command if it covers each part."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's definition. A changed definition voids the grant."""
    workspace: RealPath
    """The workspace that the grant was given for."""
    families: tuple[Family, ...]
    """Families with `is_general` only, or empty if commands that only read."""
    phrases: tuple[str, ...]
    """One phrase for each family; the description joins them."""
    beside: tuple[SameFlag, ...] = ()
    """The values of the other arguments that may change what the call does."""
    repository: RealPath | None = None
    """The `.git` directory that the workspace shared with other worktrees: there the families hold
    as well. None: in this workspace alone."""


class CallPattern(Candidate, frozen=True, kw_only=True):
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


class Grant(Struct, frozen=True, kw_only=True):
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
    """The expiry, or None if the grant ends with the session."""
    opened: SandboxOpening = NOTHING_OPENED
    """The access beyond the sandbox that the question named: the grant covers no other."""
