"""The answer of the matrix and the operator's rules on a call.

The strictest answer on any part of a call counts. A rule can make it stricter; a rule can approve
only where the matrix leaves the question open.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.auto_confirm.engine.extraction import CallSubject, Touch
from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction
from ironcurtain_proxy.auto_confirm.engine.matrix import ROWS, MatrixWord, Row, key_of
from ironcurtain_proxy.auto_confirm.engine.settings import AutoConfirmSettings, SafetyRule
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import PathValue

_STRICTNESS: Final[Mapping[MatrixWord, int]] = MappingProxyType(
    {"approve": 0, "evaluate": 1, "escalate": 2}
)


READS: Final = "safe"
"""The operation of a command that is shown to only read."""


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """The answer of the rules."""

    word: MatrixWord
    name: str = ""
    """The deciding rule; empty: none covers the call."""
    target: str | None = None
    """The reviewer that the operator's rule names."""


NAMES_A_SECRET: Final = RuleVerdict("escalate", "a file that usually holds secrets")
"""The answer to a call that names such a file or a link to it, whatever it does with it."""

OF_OTHERS: Final = RuleVerdict("escalate", "what others keep in /tmp, or another user's home")
"""The answer to a call there: sockets, dumps and files of other programs."""

MORE_THAN_READING: Final = RuleVerdict("escalate", "a command that may do more than read")
"""The answer to a shell command that is not proved to only read, whatever its operation."""


def rows_of(
    interaction: Interaction, subject: CallSubject, settings: AutoConfirmSettings
) -> tuple[Row | None, ...]:
    """The row for each thing that a call does, in the order of `subject.touches`."""
    places, features = interaction.places, settings.feature_branches
    keys = [key_of(touch, subject, places, features) for touch in subject.touches]
    return tuple([None if key is None else ROWS[key] for key in keys])


def verdict_of(
    interaction: Interaction,
    subject: CallSubject,
    rows: tuple[Row | None, ...],
    settings: AutoConfirmSettings,
) -> RuleVerdict:
    """The strictest word about anything that a call does; nothing known is not approved."""
    # INVARIANT: neither the matrix, a rule, a pattern nor a window approves one of these.
    paths = [*_paths(interaction)]
    if any(map(interaction.places.is_secret, paths)):
        return NAMES_A_SECRET
    if any(map(interaction.places.is_of_others, paths)):
        return OF_OTHERS
    verdicts = [
        _of_touch(touch, row, interaction, settings)
        for touch, row in zip(subject.touches, rows, strict=True)
    ]
    found = max(
        verdicts, key=lambda verdict: _STRICTNESS[verdict.word], default=RuleVerdict("evaluate")
    )
    # INVARIANT: the name of an operation never approves a command. `make test clean` is no test.
    does_more = interaction.command_operation not in {None, READS}
    return MORE_THAN_READING if does_more and found.word != "escalate" else found


def _paths(interaction: Interaction) -> Iterator[RealPath]:
    """The paths that a call names, and the links that they came from."""
    for fact in interaction.request.arguments:
        for value in fact.values:
            if isinstance(value, PathValue):
                yield value.path
                if value.link is not None:
                    yield value.link


def _of_touch(
    touch: Touch, row: Row | None, interaction: Interaction, settings: AutoConfirmSettings
) -> RuleVerdict:
    matrix = _of_matrix(row, interaction)
    rules = {
        rule.action: rule
        for rule in settings.safety_rules
        if _speaks(rule, touch, row, interaction)
    }
    if "escalate" in rules:
        rule = rules["escalate"]
        target = rule.target or settings.escalation_targets.high_risk
        return RuleVerdict("escalate", rule.pattern, target)
    if matrix.word == "escalate":
        return matrix
    if "conditional" in rules:
        return RuleVerdict("evaluate", rules["conditional"].pattern)
    if "auto_approve" in rules and row is not None and _is_open(row, interaction):
        return RuleVerdict("approve", rules["auto_approve"].pattern)
    return matrix


def _of_matrix(row: Row | None, interaction: Interaction) -> RuleVerdict:
    if row is None:
        return RuleVerdict("evaluate")
    word = row.word(interaction.session_type, sandboxed=interaction.sandboxed)
    return RuleVerdict(word, row.name)


def _is_open(row: Row, interaction: Interaction) -> bool:
    """Whether the operator may approve it: not what installs outside a sandbox."""
    return row.word(interaction.session_type, sandboxed=interaction.sandboxed) == "approve" or (
        row.cell(interaction.session_type) == "~"
    )


def _speaks(rule: SafetyRule, touch: Touch, row: Row | None, interaction: Interaction) -> bool:
    if rule.pattern == "git_delete_force":
        deletes = touch.operation == "delete" and interaction.request.server in {"git", "github"}
        return deletes or touch.operation == "git-force-push"
    if row is None:
        return rule.pattern == touch.operation
    return rule.pattern == row.key
