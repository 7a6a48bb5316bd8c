"""`compiled-policy.json`: the rules, read strictly.

A rule that cannot be read stops the load. An engine that skips it, or ignores the condition it
does not know, lets an allow rule match everything.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

from ironcurtain_proxy.config.policy.lists_file import DynamicLists
from ironcurtain_proxy.config.reading.document import RulePlace, Spot
from ironcurtain_proxy.config.reading.operator_paths import real, rooted
from ironcurtain_proxy.config.reading.problems import Report, nearest, shown
from ironcurtain_proxy.config.reading.reading import read_document
from ironcurtain_proxy.credentials import table as credentials
from ironcurtain_proxy.model.condition_reading import (
    ConditionSpot,
    NameSets,
    host_patterns,
    read_name_patterns,
    read_roles,
)
from ironcurtain_proxy.model.conditions import (
    VALUE_CONDITIONS,
    DomainCondition,
    ListComparison,
    ListCondition,
    NameCondition,
    PathCondition,
    SqlCondition,
    UriCondition,
)
from ironcurtain_proxy.model.decision import SEVERITY, Effect
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.operation import Method
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import RULED, Rule
from ironcurtain_proxy.model.vocabulary import word_list

BaseName: TypeAlias = Literal["shipped", "none", "coding", "supervised", "read-only"]
"""The base below the operator's rules: the shipped policy, nothing, or the policy of a preset."""

BASES: Final[tuple[BaseName, ...]] = get_args(BaseName)

Purpose: TypeAlias = Literal["enforce", "replay"]
"""The purpose of loading a policy. `replay` (`decide`) reduces two errors of existing policies to
warnings: a duplicate rule name and an unknown list."""

WORKSPACE: Final = "@workspace"
"""A placeholder for the session's workspace where a directory is expected, so that one policy
serves all projects."""

SECRETS: Final = "@secrets"
"""A placeholder for the names and places of the table of credentials."""

NOWHERE: Final = RealPath(("\0",))
"""A directory that no path lies in."""

_EFFECTS: Final[tuple[Effect, ...]] = tuple(SEVERITY)
_LIST_KINDS: Final[tuple[ListComparison, ...]] = get_args(ListComparison)

_FILE_KEYS: Final = word_list(
    """
    generatedAt constitutionHash inputHash serverName rules listDefinitions skippedServers base
    commandServers
    """
)
_DEFINITION_KEYS: Final = word_list(
    """
    name type principle generationPrompt requiresMcp mcpServerHint
    """
)
_RULE_KEYS: Final = word_list(
    """
    name description principle if then reason contained containedReads everywhere
    """
)
_CONDITION_KEYS: Final = (
    *("roles", "server", "tool", "operations", "prompt"),
    *[kind.key for kind in VALUE_CONDITIONS],
)


class PolicyFile(Struct, frozen=True):
    """The rules, and the bytes they were read from."""

    data: bytes
    rules: tuple[Rule, ...]
    places: tuple[RulePlace, ...] = ()
    """The places of the rules, in the same order."""
    base: BaseName | None = None
    """The base; None: the file names none."""
    command_servers: tuple[str, ...] = ()
    """Servers that run commands; a preset has special rules about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReader:
    """Reads a policy file into rules."""

    home: Path
    """The directory that `~` stands for."""
    workspace: RealPath | None = None
    """The directory that `@workspace` stands for; None: such a condition never holds."""
    lists: DynamicLists | None = None
    """The lists of `dynamic-lists.json`; None: there is no such file."""
    purpose: Purpose = "enforce"
    report: Report

    def read(self, path: Path) -> PolicyFile | None:
        """The file's rules, or None with the reason in the report."""
        read = read_document(path, self.report)
        if read is None:
            return None
        data, root = read
        file = root.object(_FILE_KEYS)
        definitions = file.get("listDefinitions")
        defined = frozenset(() if definitions is None else definitions.each(_definition))
        for skipped in file.read("skippedServers", Spot.items, []):
            skipped.object(("serverName", "reason")).required("serverName").text()
        rules = _RulesReader(self, defined)
        found = file.required("rules").each(rules.rule)
        return PolicyFile(
            data + credentials.table_bytes() if SECRETS.encode() in data else data,
            found,
            tuple([RulePlace(str(path), ("rules", index)) for index in range(len(found))]),
            base=file.read("base", lambda spot: spot.word(BASES), None),
            command_servers=file.read("commandServers", Spot.texts, ()),
        )

    def rules_of(self, document: Json, source: str) -> tuple[Rule, ...]:
        """The rules of a document that the package holds."""
        return Spot(document, source, self.report).each(_RulesReader(self, frozenset()).rule)

    def names(
        self, spots: Sequence[ConditionSpot], unless: frozenset[str] = frozenset()
    ) -> NameSets:
        """Return patterns of names and exempt ones. `@secrets` stands for the table of credentials.

        Args:
            spots: the patterns as they are written.
            unless: names that are exempt.
        """
        own = read_name_patterns([one for one in spots if one.value != SECRETS])
        if all(one.value != SECRETS for one in spots):
            return own, unless
        workspace = None if self.workspace is None else str(self.workspace)
        known = credentials.patterns(str(self.home), workspace)
        return own | known, unless | (credentials.examples() - own)

    def directory(self, spot: ConditionSpot, base: RealPath | None = None) -> RealPath:
        """The directory that a path condition names.

        Args:
            spot: absolute, beginning with `~/`, or `@workspace`.
            base: the directory of relative paths; None: relative paths are refused.
        """
        text = spot.name()
        if text == WORKSPACE:
            return self.workspace or NOWHERE
        path = rooted(text, self.home)
        if "*" in text:
            self.slip(spot, "names one directory, with all that lies below it: leave out the *")
        if path is None and base is not None and text:
            return real(f"{base}/{text}")
        if path is None:
            if text:
                spot.error("must be an absolute path, or begin with ~/")
            # Matches nothing; and the report stops the load.
            return NOWHERE
        return real(path)

    def entries(
        self, spots: Iterable[ConditionSpot], defined: frozenset[str] = frozenset()
    ) -> tuple[str, ...]:
        """Hosts or names, with every `@name` replaced by the entries of its list."""
        found: list[str] = []
        for item in spots:
            entry = item.name()
            is_list = entry.startswith("@")
            found.extend(self._dynamic(item, entry, defined) if is_list else (entry,))
        return tuple(found)

    def hosts(
        self, spots: Sequence[ConditionSpot], defined: frozenset[str] = frozenset()
    ) -> frozenset[str]:
        """Host patterns; one that can never match is a mistake, also in a rule that denies."""
        for item in spots:
            entry = item.value if isinstance(item.value, str) else ""
            if entry and not entry.startswith("@") and not _is_host_pattern(entry):
                self.slip(
                    item,
                    f"{shown(entry)} never matches: write host, *.host, host/path or *,"
                    " without scheme and port, and other letters as xn--",
                )
        return host_patterns(self.entries(spots, defined))

    def _dynamic(self, spot: ConditionSpot, entry: str, defined: frozenset[str]) -> tuple[str, ...]:
        name, lists = entry[1:], self.lists
        if lists is None:
            # A literal "@name" must never match anything, not even a GitHub owner of that name.
            spot.warning(f"there is no file of lists: {shown(entry)} is empty")
        elif name in lists:
            return lists[name]
        elif name in defined:
            spot.warning(f"{shown(entry)} is not resolved yet: it is empty")
        else:
            near = nearest(name, [*lists, *defined])
            self.slip(spot, f"there is no list {shown(entry)}", f"@{near}" if near else "")
        return ()

    def slip(self, spot: ConditionSpot, message: str, suggestion: str = "") -> None:
        """Report a mistake that a replayed policy may have."""
        note: Callable[[str, str], None] = spot.error if self.purpose == "enforce" else spot.warning
        note(message, suggestion)


class _RulesReader(Struct, frozen=True):
    """Reads the rules of one file."""

    reader: PolicyReader
    defined: frozenset[str]
    """The lists that the policy itself defines, resolved or not."""
    taken: set[str] = field(default_factory=set)
    """The names of the rules so far."""
    directories: dict[str, RealPath] = field(default_factory=dict)
    """A cache of resolved directories: thousands of rules may name the same one."""

    def rule(self, spot: Spot) -> Rule:
        members = spot.object(_RULE_KEYS)
        condition = members.required("if").object(_CONDITION_KEYS)
        name = self._name(members.required("name"))
        description = members.read("description", Spot.text, "")
        reason = members.read("reason", Spot.text, "") or description
        return Rule(
            name=name,
            effect=members.required("then").word(_EFFECTS),
            reason=reason or f"Rule {shown(name)} applies",
            roles=condition.read("roles", read_roles, None),
            servers=condition.read("server", _names, None),
            tools=condition.read("tool", _names, None),
            methods=condition.read("operations", _methods, None),
            prompts=condition.read("prompt", _names, None),
            paths=condition.read("paths", lambda at: PathCondition.read(at, self), None),
            names=condition.read("names", lambda at: NameCondition.read(at, self), None),
            domains=condition.read("domains", lambda at: DomainCondition.read(at, self), None),
            lists=condition.read("lists", lambda at: ListCondition.read(at, self), ()),
            sql=condition.read("sql", lambda at: SqlCondition.read(at, self), None),
            uris=condition.read("uris", lambda at: UriCondition.read(at, self), None),
            description=description,
            principle=members.read("principle", Spot.text, ""),
            contained=members.read("contained", Spot.switch, default=True),
            contained_reads=members.read("containedReads", Spot.switch, default=False),
            everywhere=members.read("everywhere", Spot.switch, default=False),
        )

    def _name(self, spot: Spot) -> str:
        name = spot.name()
        if name in self.taken:
            self.reader.slip(spot, f"{shown(name)} names two rules")
        self.taken.add(name)
        return name

    def directory(self, spot: ConditionSpot) -> RealPath:
        """Return the directory that a text names; thousands of rules may name the same one."""
        text = spot.value if isinstance(spot.value, str) else ""
        if text not in self.directories:
            self.directories[text] = self.reader.directory(spot)
        return self.directories[text]

    def hosts(self, spots: Sequence[ConditionSpot]) -> frozenset[str]:
        """Return host patterns, with every list replaced by its entries."""
        return self.reader.hosts(spots, self.defined)

    def names(self, spots: Sequence[ConditionSpot], unless: frozenset[str]) -> NameSets:
        """Return patterns of names and exempt ones, with `@secrets` replaced."""
        return self.reader.names(spots, unless)

    def entries(self, spots: Sequence[ConditionSpot]) -> tuple[str, ...]:
        """Return names, with every list replaced by its entries."""
        return self.reader.entries(spots, self.defined)


_URL_MARKS: Final = frozenset(" ?#@\\")


def _is_host_pattern(entry: str) -> bool:
    """Whether a host of a URL can match, as URLs name it: in ASCII, without port and last dot."""
    host = entry.partition("/")[0].removeprefix("*.")
    named = host.startswith("[") or ":" not in host or host.count(":") > 1
    return entry == "*" or (
        bool(host)
        and named
        and host.isascii()
        and "*" not in host
        and not host.endswith((".", ":"))
        and not _URL_MARKS & {*host}
    )


def _methods(spot: Spot) -> frozenset[Method]:
    return frozenset(spot.each(lambda one: one.word(RULED)))


def _names(spot: Spot) -> frozenset[str]:
    return frozenset(spot.each(Spot.name))


def _definition(spot: Spot) -> str:
    members = spot.object(_DEFINITION_KEYS)
    members.required("type").word(_LIST_KINDS)
    return members.required("name").name()
