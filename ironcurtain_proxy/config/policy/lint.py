"""Rules without effect: they can never match, or an earlier rule covers them.

All findings are warnings: the policy is valid, but perhaps not what its author meant. A rule is
compared with every annotated tool that it could apply to.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ironcurtain_proxy.config.policy.lint_subjects import RuleSubject, Subjects
from ironcurtain_proxy.config.reading.document import DocumentPlace, RulePlace
from ironcurtain_proxy.config.reading.problems import Report, nearest, shown
from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.conditions import ListCondition
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Rule

_Words: TypeAlias = Iterable[str]


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


@dataclass(frozen=True, slots=True)
class _Said:
    """An earlier rule that covers a subject completely, or only for paths in a directory."""

    index: int
    within: RealPath | None


@dataclass(frozen=True, slots=True)
class _Linter:
    subjects: Subjects
    places: tuple[RulePlace, ...]
    report: Report
    said: dict[RuleSubject, list[_Said]] = field(default_factory=dict)
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
            self._breadth(rule, place)
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

    def _breadth(self, rule: Rule, place: DocumentPlace) -> None:
        named = (rule.roles, rule.servers, rule.tools)
        narrows = any(one.narrows for one in rule.conditions)
        if rule.effect == "allow" and not narrows and all(one is None for one in named):
            self._warn((*place, "if"), f"{_named(rule)} has no condition: it allows every call")

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
        covering: set[int] = set()
        for subject in subjects:
            index = self._settled_by(subject, rule)
            if index is None:
                return
            covering.add(index)
        if covering:
            names = ", ".join([shown(rules[index].name) for index in sorted(covering)])
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


def _words(words: _Words) -> str:
    return " or ".join(sorted(words))
