"""The subjects of rules: every resource role of every annotated tool.

The kernel evaluates the rules once for each resource role of a tool, and once for a tool without
any.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ironcurtain_proxy.model.annotation import (
    RESOURCE_ROLES,
    Annotations,
    ArgumentRole,
    RoleSpec,
    ToolAnnotation,
)
from ironcurtain_proxy.model.policy import Rule

RuleSubject: TypeAlias = tuple[str, str, ArgumentRole | None]
"""Server, tool and resource role of one evaluation; None: the tool may have no resource role."""


@dataclass(frozen=True, slots=True)
class ToolRoles:
    """The roles that a tool's arguments can have."""

    possible: frozenset[ArgumentRole]
    certain: frozenset[ArgumentRole]
    """The roles that the arguments have in every case."""

    @classmethod
    def of(cls, annotation: ToolAnnotation) -> "ToolRoles":
        """Return the roles over all cases of all arguments."""
        specs = annotation.arguments.values()
        return cls(
            frozenset([role for spec in specs for roles in _cases(spec) for role in roles]),
            frozenset().union(*[frozenset.intersection(*_cases(spec)) for spec in specs]),
        )

    @property
    def subjects(self) -> tuple[ArgumentRole | None, ...]:
        """The subjects of one tool."""
        resources = [role for role in self.possible if role in RESOURCE_ROLES]
        always = any(role in RESOURCE_ROLES for role in self.certain)
        return (*resources,) if always else (*resources, None)


@dataclass(frozen=True, slots=True)
class Subjects:
    """The subjects of all annotated tools."""

    roles: Mapping[tuple[str, str], ToolRoles]
    tools_by_server: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, annotations: Annotations) -> "Subjects":
        """Return the subjects of the annotations in force."""
        by_server: dict[str, set[str]] = {}
        for server, tool in annotations:
            by_server.setdefault(server, set()).add(tool)
        return cls(
            {key: ToolRoles.of(annotation) for key, annotation in annotations.items()},
            {server: frozenset(tools) for server, tools in by_server.items()},
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
        """Whether a tool that the rule could apply to has an argument of one of these roles."""
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
