"""The operator's policy, read and validated."""

from collections.abc import Mapping
from functools import cached_property
from operator import itemgetter
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import (
    Condition,
    DomainCondition,
    ExceptingNames,
    ListCondition,
    NameCondition,
    NamedByCondition,
    PathCondition,
    SqlCondition,
    UriCondition,
)
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.operation import TOOL_CALL, Method, named_in
from ironcurtain_proxy.model.signing import Quorum
from ironcurtain_proxy.model.values import RealPath, SqlEffect

RuleEffect: TypeAlias = Effect
"""The effect of a compiled rule. A file with any other word is not loaded. A role that no rule
matches is denied."""

UnknownTools: TypeAlias = Literal["deny", "ask"]
UNKNOWN_TOOLS: Final[tuple[UnknownTools, ...]] = get_args(UnknownTools)
"""The treatment of tools without an annotation. `ask`: a reviewer is asked about each call, unless
an invariant or a rule denies what its arguments look like."""

LayerName: TypeAlias = Literal["managed", "project", "user", "bundle", "shipped"]
"""The layers of policy, upper ones first: the administrator's and the project's may narrow, the
user's may narrow and widen, the fleet's bundle has the rules of machines without rules of their
own, and the shipped one is the base."""

RuledMethod: TypeAlias = Literal[
    "tools/call",
    "resources/read",
    "prompts/get",
    "elicitation/create",
    "sampling/createMessage",
]
"""The methods that rules speak of. A subscription is judged as a read, and a completion as what it
completes."""


class Rule(Struct, frozen=True, kw_only=True, dict=True):
    """One rule of the policy. A condition that is None does not restrict."""

    name: str
    effect: RuleEffect
    reason: str
    roles: frozenset[ArgumentRole] | None = None
    servers: frozenset[str] | None = None
    tools: frozenset[str] | None = None
    paths: PathCondition | None = None
    names: NameCondition | None = None
    excepting: ExceptingNames | None = None
    """Paths with such a name are not covered, whatever their role; later rules are asked."""
    domains: DomainCondition | None = None
    lists: tuple[ListCondition, ...] = ()
    sql: SqlEffect | None = None
    """Every text of the role `sql` does at most this: `writes` covers what reads, too."""
    methods: frozenset[Method] | None = None
    """The methods of operations; None: see `speaks_of`."""
    prompts: frozenset[str] | None = None
    uris: UriCondition | None = None
    namedBy: NamedByCondition | None = None  # noqa: N815  conditions are set by their keys
    description: str = ""
    principle: str = ""
    contained: bool = True
    """Whether containment may replace the reviewer where this rule escalates."""
    contained_reads: bool = False
    """Whether containment may also settle a read that this rule alone asks about, and that the
    other rules allow."""
    everywhere: bool = False
    """A rule that does not allow is asked before the workspace settles any path."""
    quorum: Quorum | None = None
    """The persons who must sign the approval of a call that the rule asks about. Neither
    containment nor an earlier approval takes their place. `None` means that anybody may answer."""
    layer: LayerName = "user"
    """The layer of policy that the rule came from."""

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions on values."""
        sql = None if self.sql is None else SqlCondition(bound=self.sql)
        named = (self.paths, self.names, self.excepting, self.domains, *self.lists, sql, self.uris)
        return tuple([one for one in (*named, self.namedBy) if one is not None])

    @cached_property
    def of_call(self) -> tuple[Condition, ...]:
        """The conditions that are held against the call."""
        return tuple([one for one in self.conditions if not one.is_of_value])

    @cached_property
    def of_value(self) -> tuple[Condition, ...]:
        """The conditions that are held against one value at a time."""
        return tuple([one for one in self.conditions if one.is_of_value])

    @cached_property
    def about(self) -> frozenset[ArgumentRole] | None:
        """The roles that every condition is about; of several lists, one of them. None: all."""
        about = [] if self.roles is None else [self.roles]
        about += [
            frozenset().union(*[one.about for one in self.conditions if one.key == key])
            for key in {one.key for one in self.conditions}
            # A recipient is asked about with the resources of its call, or never.
            if self.effect == "allow" or key != NamedByCondition.key
        ]
        return frozenset.intersection(*about) if about else None

    @property
    def restricts_workspace(self) -> bool:
        """Whether the rule is asked about paths that the workspace would settle."""
        return self.effect != "allow" and (self.everywhere or self.names is not None)

    def speaks_of(self, method: Method, tool: str, role: ArgumentRole | None) -> bool:
        """Return whether the rule is about operations of this method, by its conditions.

        A rule on tools, prompts or URIs names its method by that. A rule that names none of these
        and no method is about calls of tools, and about the paths and URLs that any operation
        names. It asks or denies everywhere, but allows nothing of which it does not name the role:
        rules that were written when there were only tools must not open anything else.
        """
        if self.methods is not None and method not in self.methods:
            return False
        if self.tools is not None and method != TOOL_CALL:
            return False
        is_named = method == "prompts/get" and named_in(tool) in (self.prompts or ())
        if self.prompts is not None and not is_named:
            return False
        if self.uris is not None and role != "resource-uri":
            return False
        if method == TOOL_CALL or self.effect != "allow" or self.methods is not None:
            return True
        return self.prompts is not None or (role is not None and self._names(role))

    def _names(self, role: ArgumentRole) -> bool:
        return (role == "resource-uri" and self.uris is not None) or any(
            role in named for named in (self.roles or (), *[one.named for one in self.conditions])
        )

    @property
    def is_about_tools(self) -> bool:
        """Whether the rule may apply to a call of a tool."""
        named = self.methods is None or TOOL_CALL in self.methods
        return named and self.prompts is None and self.uris is None

    def is_about(self, role: ArgumentRole) -> bool:
        """Return whether every condition of the rule is about this role, among others or alone."""
        return self.about is None or role in self.about


class RuleBook:
    """Rules in file order, indexed by tool and role."""

    __slots__ = ("_about", "_anywhere", "_by_server", "_by_tool", "_restricting")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._by_tool: dict[str, list[tuple[int, Rule]]] = {}
        self._by_server: dict[str, list[tuple[int, Rule]]] = {}
        self._anywhere: list[tuple[int, Rule]] = []
        self._restricting: dict[tuple[str, str, ArgumentRole], tuple[Rule, ...]] = {}
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

    def about(
        self, server: str, tool: str, role: ArgumentRole | None, method: Method = TOOL_CALL
    ) -> tuple[Rule, ...]:
        """Return the rules that may apply to this tool and role.

        None stands for a tool without roles.

        Cached for each (server, tool, role), of which the annotations define a finite number.
        """
        key = (server, tool, role)
        found = self._about.get(key)
        if found is None:
            found = self._about[key] = self._select(server, tool, role, method)
        return found

    def restricting(
        self, server: str, tool: str, role: ArgumentRole, method: Method = TOOL_CALL
    ) -> tuple[Rule, ...]:
        """Return the rules among them that are asked before the workspace settles any path."""
        key = (server, tool, role)
        found = self._restricting.get(key)
        if found is None:
            about = self.about(server, tool, role, method)
            found = self._restricting[key] = tuple([r for r in about if r.restricts_workspace])
        return found

    def for_tool(self, server: str, tool: str) -> tuple[Rule, ...]:
        """Return every rule that may concern a tool, whatever its arguments are."""
        return self.about(server, tool, None)

    def _select(
        self, server: str, tool: str, role: ArgumentRole | None, method: Method
    ) -> tuple[Rule, ...]:
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
            and rule.speaks_of(method, tool, role)
        )


OTHERS_LAYERS: Final[frozenset[LayerName]] = frozenset({"bundle", "shipped"})
"""The layers below the user's, whose rules the user did not write."""

AskKind: TypeAlias = Literal["form", "url", "sampling", "sampling-tools"]
"""A kind of question of a server. `sampling-tools`: sampling that may hand tools to the model."""

ASK_KINDS: Final[Mapping[str, frozenset[AskKind]]] = {
    "elicitation/create": frozenset({"form", "url"}),
    "sampling/createMessage": frozenset({"sampling", "sampling-tools"}),
}
"""The kinds of questions of each method."""


class ProtectedPath(Struct, frozen=True, kw_only=True):
    """A file or directory that no rule, grant or sandbox makes accessible."""

    path: RealPath
    unless_within: RealPath | None = None
    """Paths inside this directory are exempt: the workspace, where it lies inside `path`."""
    anchored: bool = False
    """Directories above it may not be moved or deleted either, and calls in a git repository that
    contains it are asked about, because git reads the whole tree."""


class ProtectedName(Struct, frozen=True, kw_only=True):
    """A name that must not be changed wherever it lies.

    `parts` are consecutive components of a path, in lower case, such as `(".git", "hooks")`; a
    component may end in `*`. Paths are compared without regard to case.
    """

    parts: tuple[str, ...]
    roles: frozenset[ArgumentRole]
    whole: bool = False
    """Whether only the path that ends there is protected: `.git` itself, but not its content."""


class Floor(Struct, frozen=True, kw_only=True, dict=True):
    """A layer whose restrictions hold whatever the rules of other layers allow.

    Its rules are asked by themselves, in file order; where they allow or say nothing, they have no
    effect.
    """

    rules: tuple[Rule, ...]
    asks: bool
    """Whether its escalations hold, too, or its denials alone."""

    @cached_property
    def book(self) -> RuleBook:
        """The rules, indexed by tool and role."""
        return RuleBook(self.rules)


class Policy(Struct, frozen=True, kw_only=True, dict=True):
    """All data that a decision rests on besides the request."""

    rules: tuple[Rule, ...]
    """The rules in file order, those of an upper layer first: for each role and value the first
    rule that holds decides."""
    floors: tuple[Floor, ...] = ()
    """Layers that only restrict what the rules decide; empty for a policy of one layer."""
    workspace: RealPath | None = None
    """The directory that the agent may use freely, or None if there is none."""
    protected_paths: tuple[ProtectedPath, ...] = ()
    protected_names: tuple[ProtectedName, ...] = ()
    domain_allowlists: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The hosts that URLs may reach without a question, by server. No entry: no restriction."""
    trusted_servers: frozenset[str] = frozenset()
    unknown_tools: UnknownTools = "deny"
    may_ask: Mapping[str, frozenset[AskKind]] = field(default_factory=dict)
    """The questions that a server may put to the user, by server. No entry: none."""
    version: str = ""
    """SHA-256 over the files of all layers, hexadecimal."""

    @cached_property
    def book(self) -> RuleBook:
        """The rules, indexed by tool and role."""
        return RuleBook(self.rules)

    @cached_property
    def has_quorums(self) -> bool:
        """Whether a rule of any layer demands signatures."""
        return any(rule.quorum is not None for rule in self._every_rule)

    @cached_property
    def asks_who_named(self) -> bool:
        """Whether a rule of any layer asks who named a target."""
        return any(rule.namedBy is not None for rule in self._every_rule)

    @property
    def _every_rule(self) -> tuple[Rule, ...]:
        return (*self.rules, *[rule for floor in self.floors for rule in floor.rules])

    def questions_of(self, server: str) -> frozenset[AskKind]:
        """Return the questions that a server may put to the user, or that rules let it put."""
        found = set(self.may_ask.get(server, ()))
        for rule in self.rules:
            about = rule.servers is None or server in rule.servers
            if rule.methods is not None and about and rule.effect != "deny":
                found |= {"form", "url"} if "elicitation/create" in rule.methods else set()
                found |= {"sampling"} if "sampling/createMessage" in rule.methods else set()
        return frozenset(found)


class PolicyInForce(Struct, kw_only=True):
    """The policy that calls are judged by now, replaced as a whole while a session runs.

    A call reads the version before its facts are gathered and compares it after every wait. Where
    it differs, the call is judged again from its facts, so that each call is decided by exactly one
    policy, with the annotations that belong to it. Nothing waits between the replacement of the
    policy and that of the annotations.
    """

    policy: Policy
    candidate: Policy | None = None
    """A policy that is judged beside it and recorded, and enforces nothing."""
