"""Rules in `compiled-policy.json`, the lists that they name, and the difference of two policies.

A rule that cannot be read stops the load. An engine that skips it, or ignores the condition it
does not know, lets an allow rule match everything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args  # noqa: TID251  conditions read later

import orjson
from msgspec import UNSET, Meta, Struct, field

from ironcurtain_proxy import credentials
from ironcurtain_proxy.config.reading.document import (
    DocumentNode,
    Report,
    RulePlace,
    nearest,
    shown,
)
from ironcurtain_proxy.config.reading.forms import (
    CheckedForm,
    Document,
    Form,
    FormMistake,
    Maybe,
    NameText,
    fill,
    given,
    read_form,
)
from ironcurtain_proxy.config.reading.layers import real, rooted
from ironcurtain_proxy.model.annotation import Annotations, ArgumentRole
from ironcurtain_proxy.model.condition_reading import (
    ConditionSpot,
    NameSets,
    host_patterns,
    read_name_patterns,
)
from ironcurtain_proxy.model.conditions import VALUE_CONDITIONS, ListComparison
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.policy import Policy, Rule, RuledMethod
from ironcurtain_proxy.model.signing import Quorum
from ironcurtain_proxy.model.values import Json, RealPath

POLICY_NAME: Final = "compiled-policy.json"
SHORT_NAME: Final = "policy.yaml"
LISTS_NAME: Final = "dynamic-lists.json"
SHIPPED: Final = Path(__file__).with_name("shipped")
"""Where the packaged policy and annotations are."""

DynamicLists: TypeAlias = Mapping[str, tuple[str, ...]]
"""Entries by the name of their list, without the `@`."""


class ListForm(Form, frozen=True, kw_only=True):
    """The entries of one list."""

    values: tuple[str, ...]
    manual_additions: tuple[str, ...] = ()
    """Entries that are added to `values`."""
    manual_removals: tuple[str, ...] = ()
    """Entries that are left out of both."""
    resolved_at: Any = None
    input_hash: Any = None


class ListsForm(Document, frozen=True, kw_only=True):
    """The lists of a policy."""

    generated_at: Any = None
    lists: dict[str, ListForm]
    """Each list by its name, without the `@`."""


class ListsFile(Struct, frozen=True):
    """The lists, and the bytes they were read from."""

    data: bytes
    lists: DynamicLists


def read_lists_file(path: Path, report: Report) -> ListsFile | None:
    """Read a file of lists, or return None with the reason in the report."""
    read = read_form(path, ListsForm, report)
    if read is None:
        return None
    data, form, _ = read
    return ListsFile(data, {name: _entries(one) for name, one in form.lists.items()})


def _entries(form: ListForm) -> tuple[str, ...]:
    found = dict.fromkeys([*form.values, *form.manual_additions])
    return tuple([value for value in found if value not in form.manual_removals])


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


MOST_SIGNERS: Final = 16
"""The most persons that a rule may ask to sign."""


class ConditionsForm(Form, frozen=True, kw_only=True):
    """When a rule applies. Absent conditions ask for nothing."""

    roles: Maybe[frozenset[ArgumentRole]] = UNSET
    server: Maybe[frozenset[NameText]] = UNSET
    """Names of servers."""
    tool: Maybe[frozenset[NameText]] = UNSET
    """Names of tools."""
    operations: Maybe[frozenset[RuledMethod]] = UNSET
    """Methods besides calls of tools."""
    prompt: Maybe[frozenset[NameText]] = UNSET
    """Names of prompts."""
    # Read by their own classes, which know what may stand in them.
    paths: Any = UNSET
    names: Any = UNSET
    domains: Any = UNSET
    lists: Any = UNSET
    sql: Any = UNSET
    uris: Any = UNSET
    namedBy: Any = UNSET  # noqa: N815  read by its key


class RuleForm(CheckedForm, frozen=True, kw_only=True):
    """One rule."""

    name: NameText
    description: str = ""
    principle: str = ""
    if_: ConditionsForm = field(name="if")
    then: Effect
    reason: str = ""
    """What people read about a call that the rule decides; the description if absent."""
    contained: bool = True
    """Whether the sandbox may answer in the place of a person."""
    contained_reads: bool = False
    everywhere: bool = False
    quorum: Maybe[Annotated[int, Meta(ge=1, le=MOST_SIGNERS)]] = UNSET
    """The number of persons who must sign an approval, by keys of `reviewers.json`."""
    signers: Maybe[frozenset[NameText]] = UNSET
    """Roles of `reviewers.json` of which each of them must have one."""

    def mistakes(self) -> Iterator[FormMistake]:
        """Yield signatures of a rule that asks nobody, and roles without a number."""
        if self.quorum is not UNSET and self.then != "escalate":
            yield ("quorum",), "is for a rule that escalates: nobody signs otherwise", ""
        if self.signers is not UNSET and self.quorum is UNSET:
            yield ("signers",), "needs quorum, the number of persons who must sign", ""
        if self.signers is not UNSET and not self.signers:
            yield ("signers",), "is empty: leave it out where anybody may sign", ""

    def demanded(self) -> Quorum | None:
        """Return the signatures that an approval needs."""
        if self.quorum is UNSET:
            return None
        return Quorum(self.quorum, given(self.signers) or frozenset())


class DefinitionForm(Form, frozen=True, kw_only=True):
    """A list that the original program resolves."""

    name: NameText
    type: ListComparison
    principle: Any = None
    generation_prompt: Any = None
    requires_mcp: Any = None
    mcp_server_hint: Any = None


class SkippedForm(Form, frozen=True, kw_only=True):
    """A server that the original program left out."""

    server_name: str
    reason: Any = None


class PolicyForm(Document, frozen=True, kw_only=True):
    """The rules of a policy."""

    rules: tuple[RuleForm, ...]
    base: Maybe[BaseName] = UNSET
    """The rules below: the shipped policy, none, or those of a preset."""
    command_servers: tuple[str, ...] = ()
    """Servers that run commands; a preset has special rules about them."""
    list_definitions: tuple[DefinitionForm, ...] = ()
    skipped_servers: tuple[SkippedForm, ...] = ()
    generated_at: Any = None
    constitution_hash: Any = None
    input_hash: Any = None
    server_name: Any = None


class PolicyFile(Struct, frozen=True):
    """The rules, and the bytes they were read from."""

    data: bytes
    rules: tuple[Rule, ...]
    places: tuple[RulePlace, ...] = ()
    """The places of the rules, in the same order."""
    base: BaseName | None = None
    """The base, or None if the file names none."""
    command_servers: tuple[str, ...] = ()
    """Servers that run commands; a preset has special rules about them."""


class PolicyReader(Struct, frozen=True, kw_only=True):
    """Reads a policy file into rules."""

    home: Path
    """The directory that `~` stands for."""
    workspace: RealPath | None = None
    """The directory that `@workspace` stands for, or None if such a condition never holds."""
    lists: DynamicLists | None = None
    """The lists of `dynamic-lists.json`, or None if there is no such file."""
    purpose: Purpose = "enforce"
    report: Report

    def read(self, path: Path) -> PolicyFile | None:
        """Return the file's rules, or None with the reason in the report."""
        read = read_form(path, PolicyForm, self.report)
        if read is None:
            return None
        data, form, node = read
        rules = _RulesReader(self, frozenset([one.name for one in form.list_definitions]))
        return PolicyFile(
            data + credentials.table_bytes() if SECRETS.encode() in data else data,
            rules.rules(form.rules, node.at("rules")),
            tuple([RulePlace(str(path), ("rules", index)) for index in range(len(form.rules))]),
            base=given(form.base),
            command_servers=form.command_servers,
        )

    def rules_of(self, document: Json, source: str) -> tuple[Rule, ...]:
        """Return the rules of a document that the package holds."""
        node = DocumentNode(document, source, self.report)
        found = _RulesReader(self, frozenset())
        return found.rules(fill(node, tuple[RuleForm, ...]), node)

    def names(
        self, nodes: Sequence[ConditionSpot], unless: frozenset[str] = frozenset()
    ) -> NameSets:
        """Return patterns of names and exempt ones. `@secrets` stands for the table of credentials.

        Args:
            nodes: the patterns as they are written.
            unless: names that are exempt.
        """
        own = read_name_patterns([one for one in nodes if one.value != SECRETS])
        if all(one.value != SECRETS for one in nodes):
            return own, unless
        workspace = None if self.workspace is None else str(self.workspace)
        known = credentials.patterns(str(self.home), workspace)
        return own | known, unless | (credentials.examples() - own)

    def directory(self, node: ConditionSpot, base: RealPath | None = None) -> RealPath:
        """Return the directory that a path condition names.

        Args:
            node: absolute, beginning with `~/`, or `@workspace`.
            base: the directory of relative paths, or None if relative paths are refused.
        """
        text = node.name()
        if text == WORKSPACE:
            return self.workspace or NOWHERE
        path = rooted(text, self.home)
        if "*" in text:
            self.slip(node, "names one directory, with all that lies below it: leave out the *")
        if path is None and base is not None and text:
            return real(f"{base}/{text}")
        if path is None:
            if text:
                node.error("must be an absolute path, or begin with ~/")
            # Matches nothing; and the report stops the load.
            return NOWHERE
        return real(path)

    def entries(
        self, nodes: Iterable[ConditionSpot], defined: frozenset[str] = frozenset()
    ) -> tuple[str, ...]:
        """Return hosts or names, with every `@name` replaced by the entries of its list."""
        found: list[str] = []
        for item in nodes:
            entry = item.name()
            is_list = entry.startswith("@")
            found.extend(self._dynamic(item, entry, defined) if is_list else (entry,))
        return tuple(found)

    def hosts(
        self, nodes: Sequence[ConditionSpot], defined: frozenset[str] = frozenset()
    ) -> frozenset[str]:
        """Host patterns; one that can never match is a mistake, also in a rule that denies."""
        for item in nodes:
            entry = item.value if isinstance(item.value, str) else ""
            if entry and not entry.startswith("@") and not _is_host_pattern(entry):
                self.slip(
                    item,
                    f"{shown(entry)} never matches: write host, *.host, host/path or *,"
                    " without scheme and port, and other letters as xn--",
                )
        return host_patterns(self.entries(nodes, defined))

    def _dynamic(self, node: ConditionSpot, entry: str, defined: frozenset[str]) -> tuple[str, ...]:
        name, lists = entry[1:], self.lists
        if lists is None:
            # A literal "@name" must never match anything, not even a GitHub owner of that name.
            node.warning(f"there is no file of lists: {shown(entry)} is empty")
        elif name in lists:
            return lists[name]
        elif name in defined:
            node.warning(f"{shown(entry)} is not resolved yet: it is empty")
        else:
            near = nearest(name, [*lists, *defined])
            self.slip(node, f"there is no list {shown(entry)}", f"@{near}" if near else "")
        return ()

    def slip(self, node: ConditionSpot, message: str, suggestion: str = "") -> None:
        """Report a mistake that a replayed policy may have."""
        note: Callable[[str, str], None] = node.error if self.purpose == "enforce" else node.warning
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

    def rules(self, forms: Sequence[RuleForm], node: DocumentNode) -> tuple[Rule, ...]:
        """Return the rules of a list of them."""
        return tuple([self._rule(form, node.at(index)) for index, form in enumerate(forms)])

    def _rule(self, form: RuleForm, node: DocumentNode) -> Rule:
        if form.name in self.taken:
            self.reader.slip(node.at("name"), f"{shown(form.name)} names two rules")
        self.taken.add(form.name)
        condition = form.if_
        conditions: dict[str, Any] = {
            kind.key: kind.read(node.at("if", kind.key), self)
            for kind in VALUE_CONDITIONS
            if getattr(condition, kind.key) is not UNSET
        }
        return Rule(
            name=form.name,
            effect=form.then,
            reason=form.reason or form.description or f"Rule {shown(form.name)} applies",
            roles=given(condition.roles),
            servers=given(condition.server),
            tools=given(condition.tool),
            methods=given(condition.operations),
            prompts=given(condition.prompt),
            description=form.description,
            principle=form.principle,
            contained=form.contained,
            contained_reads=form.contained_reads,
            everywhere=form.everywhere,
            quorum=form.demanded(),
            **conditions,
        )

    def directory(self, node: ConditionSpot) -> RealPath:
        """Return the directory that a text names; thousands of rules may name the same one."""
        text = node.value if isinstance(node.value, str) else ""
        if text not in self.directories:
            self.directories[text] = self.reader.directory(node)
        return self.directories[text]

    def hosts(self, nodes: Sequence[ConditionSpot]) -> frozenset[str]:
        """Return host patterns, with every list replaced by its entries."""
        return self.reader.hosts(nodes, self.defined)

    def names(self, nodes: Sequence[ConditionSpot], unless: frozenset[str]) -> NameSets:
        """Return patterns of names and exempt ones, with `@secrets` replaced."""
        return self.reader.names(nodes, unless)

    def entries(self, nodes: Sequence[ConditionSpot]) -> tuple[str, ...]:
        """Return names, with every list replaced by its entries."""
        return self.reader.entries(nodes, self.defined)


_URL_MARKS: Final = frozenset(" ?#@\\")


def _is_host_pattern(entry: str) -> bool:
    """Return whether a host of a URL can match, as URLs name it.

    In ASCII, without port and last dot.
    """
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


# --- difference


_MOST_NAMED = 50


class RuleChanges(Struct, frozen=True, kw_only=True):
    """The names of rules that differ, in the order in which they are asked."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    def as_json(self) -> Mapping[str, Json]:
        """Return the changes for a record: at most fifty names of each kind, and their number."""
        fields: dict[str, Json] = {}
        for word, names in (
            ("added", self.added),
            ("removed", self.removed),
            ("changed", self.changed),
        ):
            if names:
                fields[word] = [*names[:_MOST_NAMED]]
            if len(names) > _MOST_NAMED:
                fields[f"{word}Count"] = len(names)
        return fields

    def __str__(self) -> str:
        counts = (("added", self.added), ("removed", self.removed), ("changed", self.changed))
        said = [f"{len(names)} {word}" for word, names in counts if names]
        return f"rules: {', '.join(said)}" if said else "no rule differs"


def all_rules(policy: Policy) -> tuple[Rule, ...]:
    """Return the rules of all layers, each once, the project's first."""
    project = [rule for floor in policy.floors if floor.asks for rule in floor.rules]
    return (*project, *policy.rules)


def rule_changes(before: Policy, after: Policy) -> RuleChanges:
    """Return the rules that are in only one of two policies, or differ."""
    old = {(rule.layer, rule.name): rule for rule in all_rules(before)}
    new = {(rule.layer, rule.name): rule for rule in all_rules(after)}
    return RuleChanges(
        added=tuple([name for layer, name in new if (layer, name) not in old]),
        removed=tuple([name for layer, name in old if (layer, name) not in new]),
        changed=tuple([key[1] for key, rule in new.items() if key in old and old[key] != rule]),
    )


class Basis(Struct, frozen=True):
    """The parts of a policy that decide on one tool: the rules about it, and its annotation."""

    policy: Policy
    annotations: Annotations

    def of(self, server: str, tool: str) -> tuple[object, ...]:
        """Return the parts for one tool. Equal parts decide every call of the tool alike.

        Args:
            server: the server's name in rules.
            tool: the server's own name of the tool.
        """
        books = (self.policy.book, *[floor.book for floor in self.policy.floors])
        rules = tuple([book.for_tool(server, tool) for book in books])
        return (*rules, self.annotations.get((server, tool)))

    def digest(self, server: str, tool: str, workspace: RealPath | None) -> str:
        """SHA-256 of the parts for one tool, equal in every session with the same parts.

        Args:
            server: the server's name in rules.
            tool: the server's own name of the tool.
            workspace: of the session: a rule about it is the same rule in each workspace.
        """
        asks = [floor.asks for floor in self.policy.floors]
        rest = (asks, self.policy.unknown_tools, server in self.policy.trusted_servers)
        said = _canonical((self.of(server, tool), rest), workspace)
        return sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _canonical(value: object, workspace: RealPath | None) -> Json:
    """Return a value as JSON: sets in order, fields by name, and the workspace by its word."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case RealPath():
            return WORKSPACE if value in {workspace, NOWHERE} else str(value)
        case frozenset() | set():
            items = [_canonical(one, workspace) for one in value]
            return [type(value).__name__, *sorted(items, key=orjson.dumps)]
        case tuple() | list():
            return [_canonical(one, workspace) for one in value]
        case Mapping():
            return {str(name): _canonical(one, workspace) for name, one in value.items()}
        case _ if (names := _compared(value)) is not None:
            members = {name: _canonical(getattr(value, name), workspace) for name in names}
            return {"type": type(value).__name__, "members": members}
        case _:
            raise TypeError(f"{type(value).__name__} is no part of a policy")


def _compared(value: object) -> Sequence[str] | None:
    """Return the fields by which a value equals another, or None if it has no fields."""
    return value.__struct_fields__ if isinstance(value, Struct) else None
