"""The risk of a call, the confidence in it, and the rules that limit what the engine may approve.

Risk and confidence are hundredths, each factor by name. The matrix row gives the base, to which the
touched things and the session's health add. Integers keep the borders between bands exact.

The matrix and the operator's rules answer on each part of a call, and the strictest answer counts.
A rule can make it stricter; a rule can approve only where the matrix leaves the question open.

A call is compared with earlier work. Novelty counts against it, and repetition never counts for it:
an agent gains nothing by doing a thing often. The number of calls that may be held is limited.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.extraction import CallSubject, Touch
from ironcurtain_proxy.auto_confirm.engine.interaction import (
    Hundredths,
    Interaction,
    Knowledge,
    OperationKind,
    Party,
    RiskBand,
)
from ironcurtain_proxy.auto_confirm.engine.settings import (
    HUMAN,
    ROWS,
    AutoConfirmSettings,
    MatrixWord,
    Row,
    RowLevel,
    SafetyRule,
    key_of,
    may_review,
)
from ironcurtain_proxy.model.request import PathValue
from ironcurtain_proxy.model.values import RealPath

Factor: TypeAlias = tuple[str, Hundredths]
"""A name and what it contributes; the contributions add up to the risk."""

LOW_AT_MOST: Final = 40
MEDIUM_AT_MOST: Final = 70
HIGH_AT_MOST: Final = 90
_LOW_AT_LEAST: Final = 20

BASES: Final[Mapping[RowLevel, Hundredths]] = {"LOW": 30, "MED": 55, "HIGH": 80, "CRITICAL": 95}
NO_ROW: Final = 50

_ONE_BAND_UP: Final[Mapping[RiskBand, Hundredths]] = {
    "SAFE": LOW_AT_MOST,
    "LOW": MEDIUM_AT_MOST,
    "MEDIUM": HIGH_AT_MOST,
    "HIGH": 100,
    "CRITICAL": 100,
}
_SAFE_READ: Final = -15
_FAILURE: Final = 5
_FAILURES_AT_MOST: Final = 10


class Risk(Struct, frozen=True):
    """A risk with its reasons."""

    hundredths: Hundredths
    factors: tuple[Factor, ...]

    @property
    def band(self) -> RiskBand:
        """The band it lies in."""
        return band_of(self.hundredths)


def band_of(hundredths: Hundredths) -> RiskBand:
    """Return the band of a risk from 0 to 100."""
    if hundredths < _LOW_AT_LEAST:
        return "SAFE"
    if hundredths <= LOW_AT_MOST:
        return "LOW"
    if hundredths <= MEDIUM_AT_MOST:
        return "MEDIUM"
    return "HIGH" if hundredths <= HIGH_AT_MOST else "CRITICAL"


def risk_of(
    interaction: Interaction,
    subject: CallSubject,
    rows: tuple[Row | None, ...],
    knowledge: Knowledge,
) -> Risk:
    """Return the risk of a call: its worst row plus its factors, at most one band higher."""
    name, base = base_of(rows)
    factors = [(f"base: {name}", base), *_additions(interaction, subject, knowledge)]
    if _is_safe_read(interaction, subject, knowledge):
        factors.append(("read in a safe path", _SAFE_READ))
    total = sum(contribution for _, contribution in factors)
    capped = max(0, min(total, _ONE_BAND_UP[band_of(base)]))
    if capped != total:
        factors.append(("at most one band up", capped - total))
    return Risk(capped, tuple(factors))


def base_of(rows: tuple[Row | None, ...]) -> Factor:
    """Return the highest base of the rows that a call falls under, with the row's name."""
    worst = ("no row", 0)
    for row in rows:
        found = ("no row", NO_ROW) if row is None else (row.name, BASES[row.level])
        worst = max(worst, found, key=lambda factor: factor[1])
    return worst if rows else ("no row", NO_ROW)


def _additions(
    interaction: Interaction, subject: CallSubject, knowledge: Knowledge
) -> Iterator[Factor]:
    is_inside = all(map(interaction.places.in_workspace, subject.paths))
    holds = (
        ("production target", 10, subject.production),
        ("destructive word", 10, subject.destructive),
        ("outside the workspace", 10, not is_inside),
        ("external host", 5, subject.external),
        ("database", 5, subject.database),
        ("session failing or unknown", 5, knowledge.health in {"failing", "unknown"}),
    )
    yield from ((name, hundredths) for name, hundredths, is_so in holds if is_so)
    failures = min(_FAILURES_AT_MOST, _FAILURE * max(0, knowledge.earlier_failures))
    if failures:
        yield "earlier failures", failures


def _is_safe_read(interaction: Interaction, subject: CallSubject, knowledge: Knowledge) -> bool:
    """Return whether a call only reads in safe paths, or can only read by its annotation."""
    operations = {touch.operation for touch in subject.touches}
    reads = operations <= {"read", "list"}
    may_only_read = subject.only_reads and operations <= {"read", "list", "unknown"}
    places = interaction.places
    return (
        (reads or may_only_read)
        and all(places.is_public(path) for path in subject.paths)
        and lies_in_safe_paths(interaction, subject, knowledge)
    )


def lies_in_safe_paths(
    interaction: Interaction, subject: CallSubject, knowledge: Knowledge
) -> bool:
    """Return whether a call names only paths, and each lies in a safe path for what is done.

    INVARIANT: a harmless path beside a URL or a command says nothing for the call.
    """
    places = interaction.places
    return subject.only_paths and all(
        any(safe.contains(path, subject.operation, places) for safe in knowledge.safe_paths)
        for path in subject.paths
    )


# --- confidence -----------------------------------------------------------------------------------
# The confidence that a person would approve a call.
#
# Hundredths, each factor by name. It counts only for calls of low or medium risk.


_BASE: Final = 50
_SIMILAR_ENOUGH: Final = 70
_USUALLY_APPROVED: Final = 90


class Confidence(Struct, frozen=True):
    """A confidence with its reasons; they add up to it."""

    hundredths: Hundredths
    factors: tuple[Factor, ...]


def confidence_of(
    interaction: Interaction, subject: CallSubject, risk: Risk, knowledge: Knowledge
) -> Confidence:
    """Return the confidence in approving a call, 0 to 100."""
    factors = [("base", _BASE), *_reasons(interaction, subject, risk, knowledge)]
    total = sum(contribution for _, contribution in factors)
    clamped = max(0, min(100, total))
    if clamped != total:
        factors.append(("from 0 to 1", clamped - total))
    return Confidence(clamped, tuple(factors))


def _reasons(
    interaction: Interaction, subject: CallSubject, risk: Risk, knowledge: Knowledge
) -> Iterator[Factor]:
    if subject.single and any(
        pattern.knows(subject.operation, subject.scopes, interaction.session_type)
        for pattern in knowledge.patterns
    ):
        yield "known pattern", 20
    rate = knowledge.approve_rates.get((subject.operation, subject.scope))
    if (
        rate is not None
        and rate.exceeds(_USUALLY_APPROVED)
        # Learned patterns never count for high risk, or for calls that are not understood.
        and risk.hundredths <= MEDIUM_AT_MOST
        and subject.understood
    ):
        yield "usually approved", 20
    if lies_in_safe_paths(interaction, subject, knowledge):
        yield "in a safe path", 15
    if knowledge.context_similarity < _SIMILAR_ENOUGH:
        yield "unlike earlier work", -15
    if knowledge.health in {"stuck", "failing"}:
        yield "session slow or stuck", -20


# --- safety rules


_STRICTNESS: Final[Mapping[MatrixWord, int]] = {"approve": 0, "evaluate": 1, "escalate": 2}


READS: Final = "safe"
"""The operation of a command that is shown to only read."""


class RuleVerdict(Struct, frozen=True):
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

ACTED_ON: Final = RuleVerdict("escalate", "a file on which programs act by themselves")
"""The answer to a change of such a file: what a hook of git did, no timeline takes back."""

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
    if interaction.acts_by_itself:
        return ACTED_ON
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


class Route(Struct, frozen=True, kw_only=True):
    """The target of a review, with its urgency."""

    target: str
    priority: Priority


def route_of(
    interaction: Interaction, subject: CallSubject, risk: Hundredths, settings: AutoConfirmSettings
) -> Route:
    """Return the reviewer that fits a call, before it is known who may review it."""
    targets = settings.escalation_targets
    if risk > HIGH_AT_MOST:
        return Route(target=targets.high_risk, priority=10)
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


# --- history


ENOUGH: Final = 100
"""The calls that must be decided before a call can count as unusual."""

EVERYDAY: Final[frozenset[OperationKind]] = frozenset(
    {"read", "list", "edit", "git-commit", "git-pull", "git-fetch", "shell-safe", "test"}
)
"""Operations that are part of any work, and never unusual."""

_PathParts: TypeAlias = tuple[str, ...]

_SAME: Final = 100
_NEXT_TO: Final = 75
_AROUND: Final = 50


def compared(
    interaction: Interaction, subject: CallSubject, knowledge: Knowledge
) -> tuple[Interaction, Knowledge]:
    """Return the call and the knowledge, completed by the comparison."""
    past = knowledge.history
    return (
        replace(interaction, unusual=is_unusual(subject.operation, past.operations)),
        replace(
            knowledge,
            context_similarity=similarity(
                _outside(subject.paths, interaction.workspace), past.directories
            ),
        ),
    )


def is_unusual(operation: OperationKind, seen: Mapping[str, int]) -> bool:
    """Return whether no earlier call did this.

    Args:
        operation: what the call does.
        seen: how often each operation was approved.
    """
    return operation not in EVERYDAY and sum(seen.values()) >= ENOUGH and not seen.get(operation)


def similarity(paths: Sequence[RealPath], directories: frozenset[RealPath]) -> Hundredths:
    """Return the nearness of the paths to earlier work: the farthest path counts.

    Args:
        paths: the paths of the call.
        directories: the directories of recent approvals. Without any there is no statement.
    """
    if not directories:
        return _SAME
    known = {directory.parts for directory in directories}
    elsewhere = [path.parts for path in paths if known.isdisjoint(_above(path.parts))]
    if not elsewhere:
        return _SAME
    # An agent can name any number of paths, so no path is compared with every directory.
    beside = {parts[:-1] for parts in known}
    around = {above for parts in known for above in _above(parts)}
    return min(_nearness(parts, beside, around) for parts in elsewhere)


def _above(parts: _PathParts) -> Iterator[_PathParts]:
    """Return a path and all its parents."""
    return (parts[:length] for length in range(len(parts), -1, -1))


def _nearness(
    parts: _PathParts, beside: AbstractSet[_PathParts], around: AbstractSet[_PathParts]
) -> Hundredths:
    if parts[:-2] in beside:
        return _NEXT_TO
    return _AROUND if parts[:-1] in around else 0


def _outside(paths: Sequence[RealPath], workspace: RealPath | None) -> Sequence[RealPath]:
    """Return the paths outside the workspace; work inside the workspace is always expected."""
    return [path for path in paths if workspace is None or not path.is_within(workspace)]


# --- the states of an interaction -----------------------------------------------------------------
# The states of an interaction, and how many may be held.
#
# pending ──▶ auto_approved
#    └─────▶ held ──▶ approved | rejected
#             ├─────▶ escalated ──▶ approved | rejected     no answer: the next reviewer
#             │           └──────▶ timed_out ──▶ auto_approved | rejected      the final table
#             └─────▶ timed_out                             there is no next one


MOST_HELD: Final = 3


def may_hold(held_risks: Sequence[Hundredths]) -> bool:
    """Return whether another call of a session may be held.

    Args:
        held_risks: the risk of each call of the session that is held, in hundredths.
    """
    return len(held_risks) <= MOST_HELD and all(risk <= HIGH_AT_MOST for risk in held_risks)
