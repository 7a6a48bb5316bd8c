"""`compiled-policy.json`: the rules, read strictly.

A rule that cannot be read stops the load. An engine that skips it, or ignores the condition it
does not know, lets an allow rule match everything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ironcurtain_proxy.administration.lists_file import DynamicLists
from ironcurtain_proxy.administration.operator_paths import real, rooted
from ironcurtain_proxy.administration.problems import Report, nearest, shown
from ironcurtain_proxy.administration.reading import read_document
from ironcurtain_proxy.administration.shapes import Given, Place, Shape, read_shape
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import (
    DomainCondition,
    ListCondition,
    ListKind,
    PathCondition,
    Rule,
)

Purpose: TypeAlias = Literal["enforce", "replay"]
"""What a policy is loaded for. `replay` (`decide`) takes two slips of existing policies as
warnings that would otherwise stop the load: a rule name used twice, a list that nobody knows."""

_NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]


class _PathsShape(Shape):
    roles: list[ArgumentRole]
    within: str


class _DomainsShape(Shape):
    roles: list[ArgumentRole]
    allowed: list[str]


class _ListShape(Shape):
    roles: list[ArgumentRole]
    allowed: list[str]
    match_type: ListKind


class _ConditionShape(Shape):
    roles: Given[list[ArgumentRole]] = None
    server: Given[list[str]] = None
    tool: Given[list[str]] = None
    paths: Given[_PathsShape] = None
    domains: Given[_DomainsShape] = None
    lists: list[_ListShape] = Field(default_factory=list)


class _RuleShape(Shape):
    name: _NonEmpty
    description: str = ""
    principle: str = ""
    condition: _ConditionShape = Field(alias="if")
    then: Effect
    reason: str = ""


class _ListDefinitionShape(Shape):
    name: _NonEmpty
    type: ListKind
    principle: str = ""
    generation_prompt: str = ""
    requires_mcp: bool = False
    mcp_server_hint: str = ""


class _SkippedServerShape(Shape):
    server_name: str
    reason: str = ""


class _PolicyShape(Shape):
    generated_at: str = ""
    constitution_hash: str = ""
    input_hash: str = ""
    server_name: str = ""
    rules: list[object]
    list_definitions: list[_ListDefinitionShape] = Field(default_factory=list)
    skipped_servers: list[_SkippedServerShape] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The rules, and the bytes they were read from."""

    data: bytes
    rules: tuple[Rule, ...]
    places: tuple[Place, ...]
    """Where each rule stands in the file, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReader:
    """Reads a policy file into rules; what it needs to know besides the file."""

    home: Path
    """What `~` stands for."""
    lists: DynamicLists | None = None
    """None: there is no file of lists."""
    purpose: Purpose = "enforce"
    report: Report
    _directories: dict[str, RealPath | None] = field(default_factory=dict)
    """Each directory is looked up once: thousands of rules may name it."""

    def read(self, path: Path) -> PolicyFile | None:
        """The file's rules, or None with the reasons in the report."""
        read = read_document(path, self.report)
        if read is None:
            return None
        data, document = read
        file = read_shape(_PolicyShape, document, path, self.report)
        if file is None:
            return None
        defined = frozenset({definition.name for definition in file.list_definitions})
        rules: list[Rule] = []
        places: list[Place] = []
        names: set[str] = set()
        for index, raw in enumerate(file.rules):
            place: Place = ("rules", index)
            shape = read_shape(_RuleShape, raw, path, self.report, place)
            if shape is None:
                continue
            if shape.name in names:
                self._note_slip(path, (*place, "name"), f"{shown(shape.name)} names two rules")
            names.add(shape.name)
            rules.append(_RuleBuilder(self, path, place, defined).rule(shape))
            places.append(place)
        return PolicyFile(data, tuple(rules), tuple(places))

    def _note_slip(self, path: Path, place: Place, message: str, suggestion: str = "") -> None:
        note = self.report.error if self.purpose == "enforce" else self.report.warning
        note(path, place, message, suggestion)

    def directory(self, text: str, path: Path, place: Place) -> RealPath:
        """Where a rule's directory leads; resolved at load and never again."""
        if text not in self._directories:
            self._directories[text] = self._resolved(text)
        found = self._directories[text]
        if found is None:
            self.report.error(path, place, "must be an absolute path, or begin with ~/")
            # Never used: the report stops the load.
            return RealPath(("\0",))
        return found

    def _resolved(self, text: str) -> RealPath | None:
        path = rooted(text, self.home)
        return None if path is None else real(path)

    def entries(
        self, entries: Sequence[str], path: Path, place: Place, defined: frozenset[str]
    ) -> tuple[str, ...]:
        """The entries with every `@name` replaced by what its list holds."""
        found: list[str] = []
        for index, entry in enumerate(entries):
            if entry.startswith("@"):
                found.extend(self._list(entry, path, (*place, index), defined))
            else:
                found.append(entry)
        return tuple(found)

    def _list(
        self, entry: str, path: Path, place: Place, defined: frozenset[str]
    ) -> tuple[str, ...]:
        name = entry[1:]
        if self.lists is None:
            # A literal "@name" must never match, not even a GitHub owner of that spelling.
            self.report.warning(path, place, f"there is no file of lists: {shown(entry)} is empty")
        elif name in self.lists:
            return self.lists[name]
        elif name in defined:
            self.report.warning(path, place, f"{shown(entry)} is not resolved yet: it is empty")
        else:
            near = nearest(name, [*self.lists, *defined])
            message = f"there is no list {shown(entry)}"
            self._note_slip(path, place, message, f"@{near}" if near else "")
        return ()


@dataclass(frozen=True, slots=True)
class _RuleBuilder:
    """Turns one rule of the right shape into the kernel's form."""

    reader: PolicyReader
    path: Path
    place: Place
    defined: frozenset[str]

    def rule(self, shape: _RuleShape) -> Rule:
        condition = shape.condition
        return Rule(
            name=shape.name,
            effect=shape.then,
            reason=shape.reason or shape.description or f"Rule {shown(shape.name)} applies",
            roles=None if condition.roles is None else frozenset(condition.roles),
            servers=None if condition.server is None else frozenset(condition.server),
            tools=None if condition.tool is None else frozenset(condition.tool),
            paths=self._paths(condition.paths),
            domains=self._domains(condition.domains),
            lists=tuple([self._list(i, entry) for i, entry in enumerate(condition.lists)]),
            description=shape.description,
            principle=shape.principle,
        )

    def _paths(self, shape: _PathsShape | None) -> PathCondition | None:
        if shape is None:
            return None
        place = (*self.place, "if", "paths", "within")
        within = self.reader.directory(shape.within, self.path, place)
        return PathCondition(roles=frozenset(shape.roles), within=within)

    def _domains(self, shape: _DomainsShape | None) -> DomainCondition | None:
        if shape is None:
            return None
        place = (*self.place, "if", "domains", "allowed")
        allowed = self.reader.entries(shape.allowed, self.path, place, self.defined)
        return DomainCondition(roles=frozenset(shape.roles), allowed=host_patterns(allowed))

    def _list(self, index: int, shape: _ListShape) -> ListCondition:
        place = (*self.place, "if", "lists", index, "allowed")
        allowed = self.reader.entries(shape.allowed, self.path, place, self.defined)
        folded = (
            host_patterns(allowed)
            if shape.match_type == "domains"
            else frozenset([entry.lower() for entry in allowed])
        )
        return ListCondition(roles=frozenset(shape.roles), allowed=folded, kind=shape.match_type)


def host_patterns(entries: Iterable[str]) -> frozenset[str]:
    """Host patterns with the host in lower case; the path of `host/path` as it stands."""
    parted = [entry.partition("/") for entry in entries]
    return frozenset([host.lower() + slash + path for host, slash, path in parted])
