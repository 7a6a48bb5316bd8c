"""What differs between two policies: their rules, and the tools that these are about."""

from collections.abc import Mapping
from dataclasses import dataclass

from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.policy import Policy, Rule

_MOST_NAMED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChanges:
    """The names of rules that differ, in the order in which they are asked."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    def as_json(self) -> Mapping[str, Json]:
        """For a record: at most fifty names of each, and how many there are."""
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
    """The rules of all layers, each once, the project's first."""
    project = [rule for floor in policy.floors if floor.asks for rule in floor.rules]
    return (*project, *policy.rules)


def rule_changes(before: Policy, after: Policy) -> RuleChanges:
    """The rules that one policy has and the other has not, or has otherwise."""
    old = {(rule.layer, rule.name): rule for rule in all_rules(before)}
    new = {(rule.layer, rule.name): rule for rule in all_rules(after)}
    return RuleChanges(
        added=tuple([name for layer, name in new if (layer, name) not in old]),
        removed=tuple([name for layer, name in old if (layer, name) not in new]),
        changed=tuple([key[1] for key, rule in new.items() if key in old and old[key] != rule]),
    )


@dataclass(frozen=True, slots=True)
class Basis:
    """What the decisions on each tool rest on: the rules about it, and its annotation."""

    policy: Policy
    annotations: Annotations

    def of(self, server: str, tool: str) -> tuple[object, ...]:
        """Equal for two policies that decide every call of a tool alike.

        Args:
            server: the server's name in rules.
            tool: the server's own name of the tool.
        """
        books = (self.policy.book, *[floor.book for floor in self.policy.floors])
        rules = tuple([book.for_tool(server, tool) for book in books])
        return (*rules, self.annotations.get((server, tool)))
