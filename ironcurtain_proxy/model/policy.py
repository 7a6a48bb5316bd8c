"""The operator's policy, read and validated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal, TypeAlias

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.path import RealPath

RuleEffect: TypeAlias = Effect
"""The effect of a compiled rule. A file with any other word is not loaded. A role that no rule
matches is denied."""

ListKind: TypeAlias = Literal["domains", "emails", "identifiers"]
"""How list entries are compared: as host patterns, or as text without regard to case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCondition:
    """Every path of these roles lies within a directory."""

    roles: frozenset[ArgumentRole]
    within: RealPath


@dataclass(frozen=True, slots=True, kw_only=True)
class NameCondition:
    """Every path of these roles has a name that one of the patterns describes.

    Such a rule that escalates or denies is evaluated before the workspace settles any path, so
    that a file of that name is asked about wherever it lies.
    """

    roles: frozenset[ArgumentRole]
    matching: frozenset[str]
    """The last names of a path, such as `.env`, `*.pem` or `.aws/credentials`, in lower case. `*`
    stands for any part of one name. Empty matches nothing.
    """
    unless: frozenset[str] = frozenset()
    """Names that are exempt although `matching` describes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainCondition:
    """Every URL of these roles leads to an allowed host."""

    roles: frozenset[ArgumentRole]
    allowed: frozenset[str]
    """`host`, `*.host`, `host/path` or `*`; hosts in lower case. Empty matches nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCondition:
    """Every value of these roles is on a list."""

    roles: frozenset[ArgumentRole]
    allowed: frozenset[str]
    """Entries as written (of `host/path` the host in lower case), with `@lists` expanded. Empty
    matches nothing."""
    kind: ListKind
    folded: frozenset[str] = field(init=False, repr=False, compare=False)
    """The entries in lower case, for roles that ignore case."""

    def __post_init__(self) -> None:
        """Compute the folded entries once."""
        object.__setattr__(self, "folded", frozenset([entry.lower() for entry in self.allowed]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the compiled policy. A condition that is None does not restrict."""

    name: str
    effect: RuleEffect
    reason: str
    roles: frozenset[ArgumentRole] | None = None
    servers: frozenset[str] | None = None
    tools: frozenset[str] | None = None
    paths: PathCondition | None = None
    names: NameCondition | None = None
    domains: DomainCondition | None = None
    lists: tuple[ListCondition, ...] = ()
    description: str = ""
    principle: str = ""
    contained: bool = True
    """False: containment never replaces the reviewer where this rule escalates."""

    def is_about(self, role: ArgumentRole) -> bool:
        """Whether every role condition of the rule names this role, possibly among others."""
        return (
            (self.roles is None or role in self.roles)
            and (self.paths is None or role in self.paths.roles)
            and (self.names is None or role in self.names.roles)
            and (self.domains is None or role in self.domains.roles)
            and (not self.lists or any(role in entry.roles for entry in self.lists))
        )


class RuleBook:
    """Rules in file order, indexed by tool and role."""

    __slots__ = ("_about", "_anywhere", "_by_name", "_by_server", "_by_tool")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._by_tool: dict[str, list[tuple[int, Rule]]] = {}
        self._by_server: dict[str, list[tuple[int, Rule]]] = {}
        self._anywhere: list[tuple[int, Rule]] = []
        self._by_name: dict[tuple[str, str, ArgumentRole], tuple[Rule, ...]] = {}
        self._about: dict[tuple[str, str, ArgumentRole | None], tuple[Rule, ...]] = {}
        for place, rule in enumerate(rules):
            if rule.tools is not None:
                for tool in rule.tools:
                    self._by_tool.setdefault(tool, []).append((place, rule))
            elif rule.servers is not None:
                for server in rule.servers:
                    self._by_server.setdefault(server, []).append((place, rule))
            else:
                self._anywhere.append((place, rule))

    def about(self, server: str, tool: str, role: ArgumentRole | None) -> tuple[Rule, ...]:
        """The rules that may apply to this tool and role; None stands for a tool without roles.

        Cached for each (server, tool, role), of which the annotations define a finite number.
        """
        key = (server, tool, role)
        found = self._about.get(key)
        if found is None:
            found = self._about[key] = self._select(server, tool, role)
        return found

    def by_name(self, server: str, tool: str, role: ArgumentRole) -> tuple[Rule, ...]:
        """The rules among them that do not allow and have a name condition."""
        key = (server, tool, role)
        found = self._by_name.get(key)
        if found is None:
            about = self.about(server, tool, role)
            found = tuple([r for r in about if r.names is not None and r.effect != "allow"])
            self._by_name[key] = found
        return found

    def _select(self, server: str, tool: str, role: ArgumentRole | None) -> tuple[Rule, ...]:
        places = [
            *self._by_tool.get(tool, ()),
            *self._by_server.get(server, ()),
            *self._anywhere,
        ]
        places.sort(key=itemgetter(0))
        return tuple(
            rule
            for _, rule in places
            if (rule.servers is None or server in rule.servers)
            and (role is None or rule.is_about(role))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedPath:
    """A file or directory that no rule, grant or sandbox makes accessible."""

    path: RealPath
    unless_within: RealPath | None = None
    """Paths inside this directory are exempt: the workspace, where it lies inside `path`."""
    anchored: bool = False
    """Directories above it may not be moved or deleted either, and calls in a git repository that
    contains it are asked about, because git reads the whole tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedName:
    """A spot that must not be changed wherever it lies.

    `parts` are consecutive components of a path, in lower case, such as `(".git", "hooks")`; a
    component may end in `*`. Paths are compared without regard to case.
    """

    parts: tuple[str, ...]
    roles: frozenset[ArgumentRole]
    whole: bool = False
    """Only a path that ends there is protected: `.git` itself, but not its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All data that a decision rests on besides the request."""

    rules: tuple[Rule, ...]
    """In file order: for each role and value the first rule that holds decides."""
    workspace: RealPath | None = None
    """The directory that the agent may use freely; None: there is none."""
    protected_paths: tuple[ProtectedPath, ...] = ()
    protected_names: tuple[ProtectedName, ...] = ()
    domain_allowlists: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By server: the hosts that its URLs may reach without a question. No entry: no restriction."""
    trusted_servers: frozenset[str] = frozenset()
    version: str = ""
    """SHA-256 over the policy files, hexadecimal."""
    book: RuleBook = field(init=False, repr=False, compare=False)
    """The same rules, indexed by tool and role."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "book", RuleBook(self.rules))
