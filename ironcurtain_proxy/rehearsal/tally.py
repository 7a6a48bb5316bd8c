"""Counts of the questions in a rehearsal."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.rehearsal.memory import EscalatedStep
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.families import families_of

Savings: TypeAlias = Literal["each", "remembered", "contained"]
"""The savings: none; by approvals for the project; and also by the sandbox and the timeline."""

WAYS: Final[tuple[Savings, ...]] = ("each", "remembered", "contained")
_LONGEST: Final = 100


@dataclass(slots=True)
class Tally:
    """The questions of one set of rules."""

    asked: Counter[Savings] = field(default_factory=Counter)
    denied: int = 0
    spared_by_grants: int = 0
    """The questions without savings that the grants of a file cover."""
    kinds: dict[Savings, Counter[str]] = field(default_factory=dict)
    examples: dict[tuple[Savings, str], Counter[str]] = field(default_factory=dict)
    denials: Counter[str] = field(default_factory=Counter)
    """The number of denials by rule."""

    def note(self, way: Savings, asked: EscalatedStep) -> None:
        """Count a question."""
        kind = kind_of(asked)
        self.asked[way] += 1
        self.kinds.setdefault(way, Counter())[kind] += 1
        self.examples.setdefault((way, kind), Counter())[_example(asked)] += 1

    def as_json(self, calls: int, most: int) -> Mapping[str, Json]:
        """The tally as JSON."""
        return {
            "denied": self.denied,
            "denials": dict(self.denials),
            "sparedByGrants": self.spared_by_grants,
            "ways": {
                way: {
                    "questions": self.asked[way],
                    "per100": per_100(self.asked[way], calls),
                    "kinds": {
                        kind: {
                            "questions": number,
                            "examples": dict(self.examples[way, kind].most_common(most)),
                        }
                        for kind, number in self.kinds.get(way, Counter()).most_common()
                    },
                }
                for way in WAYS
                if way in self.asked
            },
        }


def per_100(questions: int, calls: int) -> float:
    """Questions per 100 calls."""
    return round(100 * questions / calls, 2) if calls else 0.0


def kind_of(asked: EscalatedStep) -> str:
    """The subject of a question, as text."""
    ground = asked.judged.reasons[0].ground
    if ground.rule in _KINDS:
        return _KINDS[ground.rule]
    if asked.facts.command is not None:
        return _EFFECTS[effect_of(asked.facts.command, asked.facts.place).effect]
    return ground.rule


_KINDS: Final[Mapping[str, str]] = {
    "ask-read-secret-file": "reads a file that usually holds secrets",
    "escalate-read-secret-file": "reads a file that usually holds secrets",
    "ask-change-secret-file": "changes a file that usually holds secrets",
    "escalate-change-secret-file": "changes a file that usually holds secrets",
    "ask-read-elsewhere": "reads outside the workspace",
    "escalate-read-outside-workspace": "reads outside the workspace",
    "ask-change-elsewhere": "changes files outside the workspace",
    "escalate-write-outside-workspace": "changes files outside the workspace",
    "escalate-delete-outside-workspace": "changes files outside the workspace",
    "ask-network": "fetches a URL",
    "escalate-fetch": "fetches a URL",
}
_EFFECTS: Final[Mapping[str, str]] = {
    "reads": "a command that only reads",
    "local": "a command that works inside the machine",
    "unknown": "a command that cannot be read",
    "beyond": "a command that writes or deletes elsewhere",
    "outward": "a command that reaches out",
}


def _example(asked: EscalatedStep) -> str:
    """The kind of command, or the place; equal texts are counted together."""
    facts = asked.facts
    if facts.command is not None:
        families = families_of(facts.command, facts.place)
        words = [family.words() for family in families or ()]
        return _short(" && ".join(words) or str(facts.arguments.get("command", "")))
    return _short(_named(facts))


def _named(facts: Facts) -> str:
    values = [value.text for fact in facts.request.arguments for value in fact.values]
    return values[0] if values else facts.request.tool


def _short(text: str) -> str:
    line = " ".join(text.split())
    shown = "".join([char if char.isprintable() else "�" for char in line])
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
