"""What the operator wrote, read and checked. Pure: no I/O, no clock, no log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.path import RealPath

RuleEffect: TypeAlias = Effect
"""The words of a compiled rule. Any other word stops the load; what no rule matched is denied."""

ListKind: TypeAlias = Literal["domains", "emails", "identifiers"]
"""How the entries of a list are compared: as host patterns, or as text without regard to case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCondition:
    """Every path of these roles lies within a directory."""

    roles: frozenset[ArgumentRole]
    within: RealPath


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainCondition:
    """Every URL of these roles leads to an allowed host."""

    roles: frozenset[ArgumentRole]
    allowed: tuple[str, ...]
    """`host`, `*.host`, `host/path` or `*`, in lower case. Empty matches nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCondition:
    """Every value of these roles is on a list."""

    roles: frozenset[ArgumentRole]
    allowed: tuple[str, ...]
    """Entries in lower case, `@lists` already expanded. Empty matches nothing."""
    kind: ListKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the compiled policy. A condition that is None does not restrict."""

    name: str
    effect: RuleEffect
    reason: str
    roles: frozenset[ArgumentRole] | None = None
    servers: frozenset[str] | None = None
    tools: frozenset[str] | None = None
    paths: PathCondition | None = None
    domains: DomainCondition | None = None
    lists: tuple[ListCondition, ...] = ()
    description: str = ""
    principle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedPath:
    """A file or directory that no rule, grant or sandbox can open (R-31)."""

    path: RealPath
    unless_within: RealPath | None = None
    """Calls inside this directory are not meant: the workspace, where it lies inside `path`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedName:
    """A spot that must not be changed wherever it lies: consecutive components of a path, such as
    `(".git", "hooks")`; a component may end in `*`."""

    parts: tuple[str, ...]
    roles: frozenset[ArgumentRole]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything a decision rests on but the request itself."""

    rules: tuple[Rule, ...]
    """In file order: for each role and value the first that holds decides."""
    workspace: RealPath | None = None
    """The directory the agent may use as its own; None: there is none."""
    protected_paths: tuple[ProtectedPath, ...] = ()
    protected_names: tuple[ProtectedName, ...] = ()
    domain_allowlists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By server: the only hosts its URLs may lead to without asking. No entry: not restricted."""
    trusted_servers: frozenset[str] = frozenset()
    version: str = ""
    """SHA-256 over the policy files, hexadecimal."""
