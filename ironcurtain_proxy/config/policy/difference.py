"""The difference of two policies: their rules, and the tools that the rules are about."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from hashlib import sha256

import orjson
from msgspec import Struct

from ironcurtain_proxy.config.policy.policy_file import NOWHERE, WORKSPACE
from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Policy, Rule

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
    if isinstance(value, Struct):
        return value.__struct_fields__
    return [one.name for one in fields(value) if one.compare] if is_dataclass(value) else None
