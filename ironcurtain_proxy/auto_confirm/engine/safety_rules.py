"""The answer of the matrix and the operator's rules on a call, and who reviews it.

The strictest answer on any part of a call counts. A rule can make it stricter; a rule can approve
only where the matrix leaves the question open.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.auto_confirm.engine.extraction import CallSubject, Touch
from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths, Interaction
from ironcurtain_proxy.auto_confirm.engine.matrix import ROWS, MatrixWord, Row, key_of, may_review
from ironcurtain_proxy.auto_confirm.engine.patterns import Party
from ironcurtain_proxy.auto_confirm.engine.risk import HIGH_AT_MOST, LOW_AT_MOST, MEDIUM_AT_MOST
from ironcurtain_proxy.auto_confirm.engine.settings import HUMAN, AutoConfirmSettings, SafetyRule
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
    """The deciding rule, or empty if none covers the call."""
    target: str | None = None
    """The reviewer that the operator's rule names."""


NAMES_A_SECRET: Final = RuleVerdict("escalate", "a file that usually holds secrets")
"""The answer to a call that names such a file or a link to it, also if it only reads it."""

OF_OTHERS: Final = RuleVerdict("escalate", "what others keep in /tmp, or another user's home")
"""The answer to a call there: sockets, dumps and files of other programs."""

MORE_THAN_READING: Final = RuleVerdict("escalate", "a command that may do more than read")
"""The answer to a shell command that is not proved to only read, for any operation."""


def rows_of(
    interaction: Interaction, subject: CallSubject, settings: AutoConfirmSettings
) -> tuple[Row | None, ...]:
    """Return the row for each thing that a call does, in the order of `subject.touches`."""
    places, features = interaction.places, settings.feature_branches
    keys = [key_of(touch, subject, places, features) for touch in subject.touches]
    return tuple([None if key is None else ROWS[key] for key in keys])


def verdict_of(
    interaction: Interaction,
    subject: CallSubject,
    rows: tuple[Row | None, ...],
    settings: AutoConfirmSettings,
) -> RuleVerdict:
    """Return the strictest word about anything that a call does; nothing known is not approved."""
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
    """Yield the paths that a call names, and the links that they came from."""
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
    """Return whether the operator's rule may approve such a call, unless it installs unconfined."""
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


# --- routing --------------------------------------------------------------------------------------
# The route of a review: the reviewer, the urgency, and the fallback.
#
# Targets are names of the configuration, which maps them to reviewers. INVARIANT: a session
# never reviews its own calls.


Priority: TypeAlias = Literal[8, 9, 10]
"""The urgency of a review; higher is more urgent."""

ARCHITECT_OPERATIONS: Final = frozenset({"delete", "git-force-push", "deploy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The target of a review, with its urgency."""

    target: str
    priority: Priority
    alert: bool = False
    """Whether all channels are notified."""


def route_of(
    interaction: Interaction,
    subject: CallSubject,
    risk: Hundredths,
    settings: AutoConfirmSettings,
) -> Route:
    """Return the reviewer that fits a call, before it is known who may review it."""
    targets = settings.escalation_targets
    if risk > HIGH_AT_MOST:
        return Route(target=targets.high_risk, priority=10, alert=True)
    operations = {touch.operation for touch in subject.touches}
    is_codex = interaction.session_type == "codex"
    if risk > MEDIUM_AT_MOST or is_codex or not operations.isdisjoint(ARCHITECT_OPERATIONS):
        return Route(target=targets.high_risk, priority=9)
    if interaction.provider_mismatch or interaction.unusual:
        return Route(target=targets.medium_risk, priority=8)
    if risk > LOW_AT_MOST and subject.understood and interaction.session_type != "unknown":
        return Route(target=targets.medium_risk, priority=8)
    return Route(target=targets.high_risk, priority=9)


def reviewer_chain(
    target: str,
    interaction: Interaction,
    rows: tuple[Row | None, ...],
    settings: AutoConfirmSettings,
) -> tuple[str, ...]:
    """Return the reviewers in order: the target, then the fallback, then a person. Never empty.

    The asking session, and sessions that may not review such a call, are left out. A name without
    a reviewer is kept: a person stands in for it.
    """
    if not settings.intelligent_escalation:
        return (HUMAN,)
    names = dict.fromkeys((target, settings.fallback_escalation))
    return tuple(_fitting(names, interaction, rows, settings)) or (HUMAN,)


def _fitting(
    names: dict[str, None],
    interaction: Interaction,
    rows: tuple[Row | None, ...],
    settings: AutoConfirmSettings,
) -> Iterator[str]:
    requester = interaction.requester
    for name in names:
        reviewer = settings.reviewer(name)
        if name == requester.session:
            continue
        if reviewer is not None and reviewer.kind == "process":
            party = Party(
                session=reviewer.session or reviewer.name, session_type=reviewer.session_type
            )
            if not all(may_review(party, row, requester) for row in rows):
                continue
        yield name
