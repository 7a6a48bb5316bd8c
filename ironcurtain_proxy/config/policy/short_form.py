"""`policy.yaml`: rules in short, compiled to the same values as those of `compiled-policy.json`.

    allow sqlite: [list_tables, read_query]
    ask sqlite: "*"
    deny filesystem:
      - tools: move_file
        within: ~/Documents

The order of the file is the order of the rules. Every rule is about one tool of one server, or
about all of its tools. Rules that ask or deny are asked before the workspace settles a path: who
writes `deny filesystem: write_file` means every file. Only text is taken where a name is expected,
so that `no`, `on`, `1:30` and `2026-01-01`, which YAML 1.1 reads as something else, are refused.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy import credentials
from ironcurtain_proxy.config.policy.policy_file import (
    BASES,
    MOST_SIGNERS,
    BaseName,
    PolicyFile,
    PolicyReader,
)
from ironcurtain_proxy.config.reading.document import DocumentNode, MarkedReport, Members, RulePlace
from ironcurtain_proxy.config.reading.reading import parse, read_file
from ironcurtain_proxy.model.annotation import PATH_ROLES, URL_ROLES, ArgumentRole
from ironcurtain_proxy.model.condition_reading import read_name_patterns, read_role
from ironcurtain_proxy.model.conditions import (
    DomainCondition,
    ExceptingNames,
    NameCondition,
    PathCondition,
)
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.signing import Quorum
from ironcurtain_proxy.model.values import SQL_EFFECTS, RealPath, SqlEffect


def secret_names(roles: frozenset[ArgumentRole]) -> ExceptingNames:
    """Return the exception of files with credentials, for arguments of some roles."""
    return ExceptingNames(
        roles=roles, matching=credentials.patterns(), unless=credentials.examples()
    )


MAX_BYTES: Final = 128 * 1024
"""The most bytes of a file. The YAML reader is slow, and a project's file may be hostile: this much
takes a second or two."""
_MAX_RULES: Final = 5000

_EFFECTS: Final[dict[str, Effect]] = {"allow": "allow", "ask": "escalate", "deny": "deny"}
VERBS: Final[dict[Effect, str]] = {effect: verb for verb, effect in _EFFECTS.items()}
_PAST: Final[dict[Effect, str]] = {"allow": "allows", "escalate": "asks about", "deny": "denies"}
EVERY: Final = "*"
_ENTRY_KEYS: Final = (
    *("tools", "within", "hosts", "names", "except", "sql", "roles", "reason", "contained"),
    *("quorum", "signers"),
)


class ShortReader(Struct, frozen=True, kw_only=True):
    """Reads the short form into rules."""

    reader: PolicyReader
    relative_to: RealPath | None = None
    """The directory that relative paths start from, or None if relative paths are refused."""
    may_have_base: bool = True

    def read(self, path: Path) -> PolicyFile | None:
        """Return the file's rules, or None with the reason in the report."""
        data = read_file(path, self.reader.report)
        return None if data is None else self.read_bytes(data, str(path))

    def read_bytes(self, data: bytes, source: str) -> PolicyFile | None:
        """Return the rules of a text, or None with the reason in the report."""
        report = MarkedReport(self.reader.report)
        if len(data) > MAX_BYTES:
            message = f"is larger than {MAX_BYTES // 1024} KiB: write long policies as JSON"
            report.error(source, (), message)
            return None
        before = len(report.problems)
        document = parse(data, source, report, yaml=True)
        if len(report.problems) != before:
            return None
        return _FileReader(self, report).file(data, DocumentNode(document, source, report))


class _FileReader(Struct):
    """Reads one file."""

    short: ShortReader
    report: MarkedReport
    names: dict[str, int] = field(default_factory=dict)
    base: BaseName | None = None

    def file(self, data: bytes, root: DocumentNode) -> PolicyFile:
        rules: list[Rule] = []
        places: list[RulePlace] = []
        for key, node in root.members().items():
            if key.startswith("_"):
                continue
            for rule, place in self._key(key, node):
                rules.append(rule)
                mark = self.report.marked(place.place)
                places.append(RulePlace(root.source, place.place, mark))
                if len(rules) > _MAX_RULES:
                    node.error(f"makes more than {_MAX_RULES} rules")
                    return PolicyFile(data, ())
        return PolicyFile(data, tuple(rules), tuple(places), base=self.base)

    def _key(self, key: str, node: DocumentNode) -> Iterator[tuple[Rule, DocumentNode]]:
        verb, _, server = key.partition(" ")
        # In the middle of a key YAML leaves quotes as they are.
        server = server.strip().strip("\"'")
        if key == "base" and self.short.may_have_base:
            self.base = node.word(BASES)
        elif verb in _EFFECTS and server:
            yield from self._subject(_EFFECTS[verb], server, node)
        elif verb in _EFFECTS:
            for name, inner in node.members().items():
                yield from self._subject(_EFFECTS[verb], name, inner)
        else:
            node.error('must be "allow SERVER", "ask SERVER" or "deny SERVER"', _meant(verb))

    def _subject(
        self, effect: Effect, server: str, node: DocumentNode
    ) -> Iterator[tuple[Rule, DocumentNode]]:
        listed = node.items() if isinstance(node.value, list) else [node]
        if not listed:
            node.error('names no tool: write "*" for all of them, or leave the line out')
        for item in listed:
            if isinstance(item.value, dict):
                yield from self._entry(effect, server, item)
            else:
                tool = _word(item)
                rule = self._rule(effect, server, tool, Members(item, {}))
                if tool == EVERY and len(listed) > 1 and effect == "allow":
                    item.warning("allows every tool: the other names of this list have no effect")
                yield self._checked(rule, item), item

    def _entry(
        self, effect: Effect, server: str, item: DocumentNode
    ) -> Iterator[tuple[Rule, DocumentNode]]:
        members = item.object(_ENTRY_KEYS)
        for tool in _words(members.required("tools")):
            within = members.get("within")
            for directory in (None,) if within is None else _each(within):
                rule = self._rule(effect, server, tool, members)
                yield self._checked(self._within(rule, directory, members), item), item

    def _rule(self, effect: Effect, server: str, tool: str, members: Members) -> Rule:
        verb = VERBS[effect]
        about = "every tool" if tool == EVERY else tool
        return Rule(
            name=self._name("-".join([verb, server, *([] if tool == EVERY else [tool])])),
            effect=effect,
            reason=members.read("reason", _word, "")
            or f"Your policy {_PAST[effect]} {server}/{about}",
            servers=None if server == EVERY else frozenset([server]),
            tools=None if tool == EVERY else frozenset([tool]),
            roles=members.read("roles", _roles, None),
            sql=members.read("sql", _sql, None),
            contained=members.read("contained", DocumentNode.switch, default=True),
            everywhere=effect != "allow",
            quorum=_quorum(effect, members),
        )

    def _within(self, rule: Rule, within: DocumentNode | None, members: Members) -> Rule:
        hosts, names = members.get("hosts"), members.get("names")
        said = rule.roles
        paths = PATH_ROLES if said is None else said & PATH_ROLES
        urls = URL_ROLES if said is None else said & URL_ROLES
        if hosts is not None and (within is not None or names is not None):
            hosts.error("cannot be combined with within or names: write a rule for each")
        excepted = members.get("except")
        if excepted is not None and names is None:
            if rule.effect != "allow":
                excepted.error("is for a rule that allows, or for one with names: leave it out")
            matching, unless = self.short.reader.names(_texts(excepted))
            leaves = ExceptingNames(roles=paths, matching=matching, unless=unless)
            rule = replace(rule, excepting=leaves)
        reader = self.short.reader
        if within is not None:
            directory = reader.directory(_text(within), self.short.relative_to)
            rule = replace(rule, paths=PathCondition(roles=paths, within=directory))
        if names is not None:
            exempt = members.read("except", _patterns, frozenset())
            matching, unless = reader.names(_texts(names), exempt)
            condition = NameCondition(roles=paths, matching=matching, unless=unless)
            rule = replace(rule, names=condition)
        if hosts is not None:
            allowed = reader.hosts(_texts(hosts))
            rule = replace(rule, domains=DomainCondition(roles=urls, allowed=allowed))
        return rule

    def _checked(self, rule: Rule, node: DocumentNode) -> Rule:
        named = rule.servers is not None or rule.tools is not None
        if rule.effect == "allow" and not named and not any(c.narrows for c in rule.conditions):
            node.error("allows every tool of every server: name the server")
        return rule

    def _name(self, name: str) -> str:
        count = self.names[name] = self.names.get(name, 0) + 1
        return name if count == 1 else f"{name}-{count}"


def _meant(verb: str) -> str:
    return {"escalate": "ask", "permit": "allow", "block": "deny", "forbid": "deny"}.get(verb, "")


def _word(node: DocumentNode) -> str:
    """Return the text of a value.

    Reports a value that YAML read as another type and that needs quotes.
    """
    if isinstance(node.value, str):
        return node.name()
    if node.value is None or isinstance(node.value, bool | int | float):
        what = {bool: "true or false", type(None): "nothing"}.get(type(node.value), "a number")
        node.error(f"YAML reads this as {what}: put it in quotes")
        return ""
    return node.text()


def _text(node: DocumentNode) -> DocumentNode:
    return (
        node
        if isinstance(node.value, str)
        else DocumentNode(_word(node), node.source, None, node.place)
    )


def _each(node: DocumentNode) -> list[DocumentNode]:
    if not isinstance(node.value, list):
        return [node]
    if not node.value:
        node.error("is empty")
    return node.items()


def _words(node: DocumentNode) -> list[str]:
    return [_word(item) for item in _each(node)]


def _texts(node: DocumentNode) -> list[DocumentNode]:
    """Return the texts of a list, or a text alone."""
    return [_text(item) for item in _each(node)]


def _quorum(effect: Effect, members: Members) -> Quorum | None:
    """Return the signatures that an approval needs."""
    said, roles = members.get("quorum"), members.get("signers")
    if said is None:
        if roles is not None:
            roles.error("needs quorum, the number of persons who must sign")
        return None
    if effect != "escalate":
        said.error("is for ask: nobody signs otherwise")
    count = said.value
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_SIGNERS:
        said.error(f"must be a number of persons from 1 to {MOST_SIGNERS}")
        return None
    return Quorum(count, frozenset(() if roles is None else _words(roles)))


def _patterns(node: DocumentNode) -> frozenset[str]:
    return read_name_patterns(_texts(node))


def _sql(node: DocumentNode) -> SqlEffect:
    return node.word(SQL_EFFECTS[:-1])


def _roles(node: DocumentNode) -> frozenset[ArgumentRole]:
    return frozenset([read_role(item) for item in _each(node)])
