"""Rules and annotations without effect.

All findings are warnings: the policy is valid, but perhaps not what its author meant. A rule can
never match, or an earlier rule covers it: it is compared with every annotated tool that it could
apply to, once for each resource role, and once for a tool without any, as the kernel evaluates it.

Annotations that no longer fit are found alone, or compared with the live tools. An argument or a
tool without annotation is denied; `check` reports it before the agent meets it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ironcurtain_proxy.config.annotating.propose import propose
from ironcurtain_proxy.config.annotating.texts import words_of
from ironcurtain_proxy.config.reading.document import (
    DocumentPlace,
    Report,
    RulePlace,
    nearest,
    shown,
)
from ironcurtain_proxy.model.annotation import (
    PATH_ROLES,
    RESOURCE_ROLES,
    Annotations,
    ArgumentRole,
    RoleSpec,
    ToolAnnotation,
    declared_arguments,
)
from ironcurtain_proxy.model.conditions import ListCondition
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition
from ironcurtain_proxy.model.values import Json, RealPath

# --- lint subjects


RuleSubject: TypeAlias = tuple[str, str, ArgumentRole | None]
"""Server, tool and resource role of one evaluation, or None if the tool may have no resource
role."""


class ToolRoles(Struct, frozen=True):
    """The roles that a tool's arguments can have."""

    possible: frozenset[ArgumentRole]
    certain: frozenset[ArgumentRole]
    """The roles that the arguments have in every case."""
    sends: bool
    """Whether what the arguments name leaves this machine."""

    @classmethod
    def of(cls, annotation: ToolAnnotation) -> "ToolRoles":
        """Return the roles over all cases of all arguments."""
        specs = annotation.arguments.values()
        return cls(
            frozenset([role for spec in specs for roles in _cases(spec) for role in roles]),
            frozenset().union(*[frozenset.intersection(*_cases(spec)) for spec in specs]),
            annotation.effect == "sends",
        )

    @property
    def subjects(self) -> tuple[ArgumentRole | None, ...]:
        """The subjects of one tool."""
        resources = [role for role in self.possible if role in RESOURCE_ROLES]
        always = any(role in RESOURCE_ROLES for role in self.certain)
        return (*resources,) if always else (*resources, None)


class Subjects(Struct, frozen=True):
    """The subjects of all annotated tools."""

    roles: Mapping[tuple[str, str], ToolRoles]
    tools_by_server: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, annotations: Annotations) -> "Subjects":
        """Return the subjects of the annotations in force."""
        servers = {server for server, _ in annotations}
        return cls(
            {key: ToolRoles.of(annotation) for key, annotation in annotations.items()},
            {one: frozenset([tool for at, tool in annotations if at == one]) for one in servers},
        )

    def tools_of(self, servers: Iterable[str] | None) -> frozenset[str]:
        """Return the tools of these servers; None: of all servers."""
        chosen = self.tools_by_server if servers is None else servers
        return frozenset().union(*[self.tools_by_server.get(s, frozenset()) for s in chosen])

    def of_rule(self, rule: Rule) -> frozenset[RuleSubject]:
        """Return every subject that the rule may apply to."""
        return frozenset(
            [
                (server, tool, role)
                for server, tool, roles in self._in_scope(rule)
                for role in roles.subjects
                if _can_match(rule, role, roles.possible)
            ]
        )

    def have_role(self, rule: Rule, wanted: frozenset[ArgumentRole]) -> bool:
        """Return whether a tool the rule could apply to has an argument of one of these roles."""
        return any(roles.possible & wanted for _, _, roles in self._in_scope(rule))

    def certainly(self, rule: Rule, subject: RuleSubject) -> bool:
        """Return whether the rule applies to the subject in every case of its arguments."""
        server, tool, role = subject
        return role is not None or _can_match(rule, None, self.roles[server, tool].certain)

    def _in_scope(self, rule: Rule) -> Iterable[tuple[str, str, ToolRoles]]:
        servers = self.tools_by_server if rule.servers is None else rule.servers
        for server in servers:
            known = self.tools_by_server.get(server, frozenset())
            for tool in known if rule.tools is None else known & rule.tools:
                yield server, tool, self.roles[server, tool]


def _cases(spec: RoleSpec) -> list[frozenset[ArgumentRole]]:
    inside = frozenset().union(*[one.every_role() for one in spec.inside.values()])
    return [inside | {*spec.default}, *[inside | {*case.roles} for case in spec.cases]]


def _can_match(rule: Rule, role: ArgumentRole | None, roles: frozenset[ArgumentRole]) -> bool:
    if role is None and rule.roles is not None and rule.roles.isdisjoint(roles):
        return False
    if role is not None and not rule.is_about(role):
        return False
    return all(one.may_hold(role, roles) for one in rule.conditions)


# --- lint


def lint_rules(
    rules: tuple[Rule, ...],
    annotations: Annotations,
    places: Sequence[RulePlace],
    report: Report,
) -> None:
    """Report suspicious rules of one layer, in their order.

    Args:
        rules: the layer's. Rules of a lower layer may follow.
        annotations: of all tools.
        places: where the rules of the layer stand; a rule without a place is not looked at.
        report: gets the warnings.
    """
    _Linter(Subjects.of(annotations), tuple(places), report).lint(rules[: len(places)])


class _Said(Struct, frozen=True):
    """An earlier rule that covers a subject completely, or only for paths in a directory."""

    index: int
    within: RealPath | None


class _Linter(Struct, frozen=True):
    subjects: Subjects
    places: tuple[RulePlace, ...]
    report: Report
    said: dict[RuleSubject, list[_Said]] = msgspec.field(default_factory=dict)
    """The subjects that earlier rules cover."""

    def lint(self, rules: tuple[Rule, ...]) -> None:
        for index, rule in enumerate(rules):
            place: DocumentPlace = (index,)
            before = len(self.report.problems)
            self._names(rule, place)
            self._empty(rule, place)
            if not rule.is_about_tools:
                # Only a running server knows its resources and prompts.
                continue
            subjects = self.subjects.of_rule(rule)
            if not subjects and len(self.report.problems) == before:
                self._warn((*place, "if"), f"{_named(rule)} can never match: {self._why(rule)}")
            self._breadth(rule, place, subjects)
            self._containment(rule, place)
            self._shadow(rule, place, subjects, rules)
            self._remember(rule, index, subjects)

    def _warn(self, place: DocumentPlace, message: str, suggestion: str = "") -> None:
        at = self.places[int(place[0])]
        # In the short form the parts of a rule have no places of their own.
        inner = () if at.text else place[1:]
        self.report.warning(at.source, (*at.path, *inner), at.text + message, suggestion)

    def _names(self, rule: Rule, place: DocumentPlace) -> None:
        servers = self.subjects.tools_by_server
        for name in sorted(rule.servers or ()):
            if name not in servers:
                message = f"{shown(name)} is not a server with annotations"
                self._warn((*place, "if", "server"), message, nearest(name, servers))
        known = self.subjects.tools_of(rule.servers)
        for name in sorted(rule.tools or ()):
            if known and name not in known:
                message = f"{shown(name)} is not an annotated tool of these servers"
                self._warn((*place, "if", "tool"), message, nearest(name, known))

    def _empty(self, rule: Rule, place: DocumentPlace) -> None:
        lists: list[tuple[DocumentPlace, Collection[str] | None]] = [
            (("roles",), rule.roles),
            (("server",), rule.servers),
            (("tool",), rule.tools),
        ]
        for condition in rule.conditions:
            place_of: DocumentPlace = (condition.key,)
            if isinstance(condition, ListCondition):
                place_of = (condition.key, rule.lists.index(condition))
            lists += [((*place_of, key), found) for key, found in condition.collections()]
        for inner, values in lists:
            if values is not None and not values:
                self._warn((*place, "if", *inner), "is empty: the rule can never match")

    def _breadth(self, rule: Rule, place: DocumentPlace, subjects: Iterable[RuleSubject]) -> None:
        if rule.effect != "allow":
            return
        # Rules that an earlier `init` wrote did both.
        on_paths = {one[:2] for one in subjects if rule.tools and one[2] in PATH_ROLES}
        sending = {one for one in on_paths if self.subjects.roles[one].sends}
        lets = sending if sending < on_paths else set()
        what = "send files that other tools only read: leave it out"
        if not any(one.narrows for one in rule.conditions):
            if all(one is None for one in (rule.roles, rule.servers, rule.tools)):
                self._warn((*place, "if"), f"{_named(rule)} has no condition: it allows every call")
            lets, what = on_paths, "reach every path that is not protected: name paths"
        for _, tool in sorted(lets):
            said = f"{_named(rule)} lets {tool} {what}, or run `init --undo` and `init`"
            self._warn((*place, "if"), said)

    def _containment(self, rule: Rule, place: DocumentPlace) -> None:
        if rule.effect != "escalate" and not rule.contained:
            self._warn(
                (*place, "contained"),
                f"{_named(rule)} asks nobody: contained counts in rules that escalate",
            )

    def _why(self, rule: Rule) -> str:
        if rule.roles is not None and not self.subjects.have_role(rule, rule.roles):
            return f"no such tool has an argument of role {_words(rule.roles)}"
        for one in rule.conditions:
            if one.narrows and not self.subjects.have_role(rule, one.about):
                return f"no such tool has an argument of role {_words(one.about)}"
        return "its conditions are about different roles, and a rule is asked about one at a time"

    def _shadow(
        self,
        rule: Rule,
        place: DocumentPlace,
        subjects: frozenset[RuleSubject],
        rules: tuple[Rule, ...],
    ) -> None:
        covering = {self._settled_by(subject, rule) for subject in subjects}
        known = sorted([index for index in covering if index is not None])
        if known and len(known) == len(covering):
            names = ", ".join([shown(rules[index].name) for index in known])
            what = f"{_named(rule)} is never reached: its calls are decided before, by {names}"
            self._warn(place, what)

    def _settled_by(self, subject: RuleSubject, rule: Rule) -> int | None:
        for said in self.said.get(subject, ()):
            if said.within is None:
                return said.index
            if rule.paths is not None and rule.paths.within.is_within(said.within):
                return said.index
        return None

    def _remember(self, rule: Rule, index: int, subjects: frozenset[RuleSubject]) -> None:
        if not all(one.settles for one in rule.conditions):
            return
        within = None if rule.paths is None else rule.paths.within
        for subject in subjects:
            if self.subjects.certainly(rule, subject):
                self.said.setdefault(subject, []).append(_Said(index, within))


def _named(rule: Rule) -> str:
    return f"rule {shown(rule.name)}"


def _words(words: Iterable[str]) -> str:
    return " or ".join(sorted(words))


# --- lint annotations


class LiveTools(Struct, frozen=True):
    """The tools that the running servers offer."""

    definitions: tuple[ToolDefinition, ...]
    """The tools, by the operator's server name."""
    answered: frozenset[str]
    """The servers that answered."""
    silent: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The reason why a server did not answer, as far as known."""
    hosts: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """The hosts that the sandbox of a server kept it from."""
    prompts: Mapping[str, tuple[Mapping[str, Json], ...]] = msgspec.field(default_factory=dict)
    """The prompts by server; a server that did not list them is missing."""
    resources: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """The URIs of resources, and templates of URIs, by server."""


def lint_annotations(annotations: Annotations, source: object, report: Report) -> None:
    """Report arguments with a case wider than the default, which should be the widest."""
    places: Counter[str] = Counter()
    for (server, _), annotation in annotations.items():
        index = places[server]
        places[server] += 1
        for name, spec in annotation.arguments.items():
            extra = _beyond_default(spec)
            if extra:
                place: DocumentPlace = ("servers", server, "tools", index, "args", name)
                words = ", ".join(sorted(extra))
                report.warning(source, place, f"a case has roles that the default lacks: {words}")


def lint_servers(
    annotations: Annotations, servers: Iterable[ServerSpec], source: object, report: Report
) -> None:
    """Report servers without any annotated tool: no call of theirs is allowed."""
    known = {server for server, _ in annotations}
    for spec in servers:
        if spec.annotations not in known:
            message = (
                f"server {shown(spec.name)} has no annotated tool: every call is denied, or asked "
                f"about (unknownTools). Run `ironcurtain-proxy annotate {spec.name}`"
            )
            report.warning(source, (), message, nearest(spec.annotations, known))


def lint_live(
    annotations: Annotations,
    live: LiveTools,
    servers: Iterable[ServerSpec],
    report: Report,
    trusted: Collection[str] = (),
    elsewhere: Collection[tuple[str, str]] = (),
) -> None:
    """Compare the annotations with the tools that the servers offer now.

    Args:
        annotations: of all tools.
        live: what servers offer.
        servers: as configured.
        report: takes what is wrong.
        trusted: the servers whose calls are sent as they come, by their names in the policy.
        elsewhere: the annotations, by server and tool, that another door than a server uses.
    """
    for spec in servers:
        if spec.name not in live.answered:
            why = live.silent.get(spec.name, "")
            # No reason means that the server is still starting: fetching a package takes time.
            words = f"did not answer: not compared ({why or '`--seconds 60` waits longer'})"
            say = report.error if why else report.warning
            say(f"server {shown(spec.name)}", (), words)
            continue
        tools = {tool.name: tool for tool in live.definitions if tool.server == spec.name}
        known = {tool: a for (owner, tool), a in annotations.items() if owner == spec.annotations}
        for tool, definition in tools.items():
            place = f"{spec.name}/{tool}"
            if tool in known:
                _compare(known[tool], definition.input_schema, place, report)
            else:
                message = (
                    "has no annotation: every call is denied, or asked about (unknownTools). Run "
                    f"`ironcurtain-proxy annotate {spec.name}`"
                )
                report.warning(place, (), message, nearest(tool, of_same_verb(tool, known)))
        _say_relative(spec, known, tools, report, is_trusted=spec.annotations in trusted)
        for tool in known:
            if tool not in tools and (spec.annotations, tool) not in elsewhere:
                place = f"{spec.name}/{tool}"
                report.warning(place, (), "is annotated, but the server does not offer it")


def _say_relative(
    spec: ServerSpec,
    known: Mapping[str, ToolAnnotation],
    tools: Mapping[str, ToolDefinition],
    report: Report,
    *,
    is_trusted: bool,
) -> None:
    """Report, once a server, an argument that is sent as it is and may be a relative path."""
    if spec.cwd is not None or spec.remote is not None:
        return
    for name, definition in tools.items():
        if name not in known and not is_trusted:
            continue
        given = known[name].arguments if name in known else {}
        if any(spec.every_role() & PATH_ROLES for spec in given.values()):
            continue  # another argument says where it begins, as `repo_path` of git does
        for argument, proposed in propose(definition.raw).arguments.items():
            if name in known and argument not in given:
                continue  # calls that use it are denied
            may_be = {role for _, one in proposed.each(argument) for role in one.roles} & PATH_ROLES
            if may_be and not (given and given[argument].every_role() & PATH_ROLES):
                message = (
                    f"argument {shown(argument)} looks like a path, and is sent as it is: a "
                    "relative one means a directory of the server's own. Give it a path role, or "
                    'set "cwd": "@workspace" in the entry of the server'
                )
                report.warning(f"{spec.name}/{name}", (), message)
                return


def of_same_verb(tool: str, known: Iterable[str]) -> list[str]:
    """Return the tools with the same first word: `write_query` misspelt is never `read_query`."""
    first = words_of(tool)[:1]
    return [other for other in known if words_of(other)[:1] == first]


def _compare(annotation: ToolAnnotation, schema: Json, place: str, report: Report) -> None:
    live = {} if schema is None else declared_arguments(schema).names
    for name in live:
        if name not in annotation.arguments:
            message = f"argument {shown(name)} is not annotated: calls that use it are denied"
            report.warning(place, (), message)
    for name in annotation.arguments:
        if name not in live:
            message = f"argument {shown(name)} is annotated, but the tool no longer has it"
            report.warning(place, (), message, nearest(name, live))
    same_names = live.keys() == annotation.arguments.keys()
    if annotation.input_schema and same_names and annotation.input_schema != schema:
        message = (
            "its input schema has changed since it was annotated: look at its roles again with "
            "`ironcurtain-proxy annotate`"
        )
        report.warning(place, (), message)


def _beyond_default(spec: RoleSpec) -> frozenset[str]:
    extra = {role for case in spec.cases for role in case.roles}
    return frozenset(extra - {*spec.default, "none"})
