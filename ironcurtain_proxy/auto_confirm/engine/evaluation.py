"""The whole evaluation of a call by the engine, and its result.

The engine approves, approves with safeguards, or sends the call to a reviewer. It never denies. The
checks stand in a table in their order; the first one with an answer decides. Each check that
approves asks `_may_approve` first: no evidence outweighs a rule that escalates, a high risk, or an
unknown or unhealthy session. The result has the reasons for the record, and says what becomes of a
question that nobody answers.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from ironcurtain_proxy.auto_confirm.engine.extraction import CallSubject, subject_of
from ironcurtain_proxy.auto_confirm.engine.interaction import (
    ContextScore,
    Hundredths,
    Interaction,
    Knowledge,
    OperationKind,
    RiskBand,
)
from ironcurtain_proxy.auto_confirm.engine.risk import (
    HIGH_AT_MOST,
    LOW_AT_MOST,
    MEDIUM_AT_MOST,
    Confidence,
    Factor,
    Priority,
    Risk,
    RuleVerdict,
    confidence_of,
    reviewer_chain,
    risk_of,
    route_of,
    rows_of,
    verdict_of,
)
from ironcurtain_proxy.auto_confirm.engine.settings import (
    AutoConfirmSettings,
    MatrixWord,
    Row,
    TimeoutAction,
)
from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decision import Engine
from ironcurtain_proxy.model.escalation import Origin
from ironcurtain_proxy.model.values import Json

# --- decision


EngineAction: TypeAlias = Literal["approve", "conditional", "escalate", "held"]
"""`conditional`: approved, with every safeguard. `held`: only a reviewer decides."""

EngineCheck: TypeAlias = Literal[
    "switched-off", "deployment", "pattern", "safety-rule", "risk", "provider",
    "confidence", "context", "night", "testing", "load", "health", "unknown", "default",
]  # fmt: skip
"""The check that decided, in the order of the checks."""

Safeguard: TypeAlias = Literal["sandbox", "rollback", "logging", "monitoring"]
SAFEGUARDS: Final[tuple[Safeguard, ...]] = get_args(Safeguard)
"""The safeguards of a conditional approval, which needs all of them."""

_CERTAIN: Final = 100

_APPROVALS: Final[frozenset[EngineAction]] = frozenset({"approve", "conditional"})


class EngineDecision(Struct, frozen=True, kw_only=True):
    """One decision. Scores in hundredths."""

    action: EngineAction
    check: EngineCheck
    reason: str
    target: str | None = None
    """The reviewer, or None if none is needed."""
    fallback: str | None = None
    """The reviewer if the target does not answer. `None` means no other."""
    priority: Priority | None = None
    alert: bool = False
    operation: OperationKind
    rows: tuple[str, ...] = ()
    """The matrix rows that the call falls under."""
    verdict: MatrixWord = "evaluate"
    """The answer of the safety rules."""
    risk: Hundredths
    band: RiskBand
    confidence: Hundredths
    context_score: Hundredths
    factors: tuple[Factor, ...]
    """The parts of the risk."""
    confidence_factors: tuple[Factor, ...]
    safeguards: tuple[Safeguard, ...] = ()
    taken_back: tuple[str, ...] = ()
    """What takes an approved call back, by the rows that it falls under."""

    @property
    def approves(self) -> bool:
        """Whether the call needs no reviewer."""
        return self.action in _APPROVALS

    @property
    def urgency(self) -> Priority:
        """The priority of its review, where there is one."""
        return self.priority or 9

    @property
    def decided_by(self) -> Engine:
        """The decider, for the record."""
        return Engine(self.check)

    def as_json(self) -> dict[str, Json]:
        """Return the decision for the record, with all its reasons."""
        record: dict[str, Json] = {
            "action": self.action,
            "check": self.check,
            "reason": self.reason,
            "target": self.target,
            "fallback": self.fallback,
            "priority": self.priority,
            "alert": self.alert,
            "operation": self.operation,
            "rows": list(self.rows),
            "verdict": self.verdict,
            "risk": self.risk / _CERTAIN,
            "band": self.band,
            "confidence": self.confidence / _CERTAIN,
            "contextScore": self.context_score / _CERTAIN,
            "factors": _written(self.factors),
            "confidenceFactors": _written(self.confidence_factors),
            "safeguards": list(self.safeguards),
            "takenBack": list(self.taken_back),
        }
        if self.approves:
            record["auto"] = True
        return record


UNDECIDED: Final = EngineDecision(
    action="held",
    check="default",
    reason="The engine could not decide",
    target="human",
    priority=9,
    operation="unknown",
    risk=50,
    band="MEDIUM",
    confidence=0,
    context_score=0,
    factors=(),
    confidence_factors=(),
)
"""The decision for a question outside of the engine: a person is asked."""


def _written(factors: tuple[Factor, ...]) -> list[Json]:
    return [{"name": name, "contribution": value / _CERTAIN} for name, value in factors]


# --- unanswered questions -------------------------------------------------------------------------
# The final table: what happens to unanswered questions.
#
# They are refused. The operator may change this only for operations that the matrix approves
# anyway.


APPROVABLE: Final[frozenset[OperationKind]] = frozenset(
    {"edit", "read", "list", "git-pull", "git-fetch", "shell-safe"}
)
"""Operations of which every row of the matrix is Auto-approve, with a base of at most 0.4. The
row of tests is left out: a test is known only by the name of its command, which is no proof."""

_HARMLESS: Final[frozenset[ArgumentRole]] = frozenset({"read-path", "write-path"})


def is_policy_critical(origins: tuple[Origin, ...], roles: tuple[ArgumentRole, ...]) -> bool:
    """Return whether the policy itself asked, for more than reading or writing files.

    Args:
        origins: what asked for a review.
        roles: the argument roles that escalated, or None if the rule was about the whole call.
    """
    return "policy" in origins and (not roles or not _HARMLESS.issuperset(roles))


def check_on_timeout(table: Mapping[OperationKind, TimeoutAction]) -> tuple[str, ...]:
    """Return the mistakes in a configured table, one line for each operation."""
    return tuple(
        f"auto_confirm.on_timeout.{operation}: cannot be approved without an answer; "
        f"only {', '.join(sorted(APPROVABLE))} can"
        for operation, action in table.items()
        if action == "approve" and operation not in APPROVABLE
    )


def on_timeout(
    decision: EngineDecision, settings: AutoConfirmSettings, *, policy_critical: bool
) -> TimeoutAction:
    """Return the action for a call after the last reviewer's deadline."""
    table = settings.on_timeout if settings.enabled else MappingProxyType({})
    wanted = table.get(decision.operation) == "approve"
    may_be = (
        decision.operation in APPROVABLE
        and decision.verdict == "approve"
        and decision.risk <= LOW_AT_MOST
        and decision.action == "escalate"
        and not policy_critical
    )
    return "approve" if wanted and may_be else "deny"


# --- evaluation


_SURE: Final = 80
_SURE_ENOUGH_WITH_SAFEGUARDS: Final = 60
_LONG_QUEUE: Final = 10
_RELIEF_BELOW: Final = 50


class Assessment(Struct, frozen=True, kw_only=True):
    """The knowledge about a call for the checks."""

    interaction: Interaction
    settings: AutoConfirmSettings
    knowledge: Knowledge
    subject: CallSubject
    rows: tuple[Row | None, ...]
    verdict: RuleVerdict
    risk: Risk
    confidence: Confidence
    context: ContextScore
    is_night: bool


class _Outcome(Struct, frozen=True):
    action: EngineAction
    reason: str
    target: str | None = None
    """The reviewer instead of the route's."""


_CheckFunction: TypeAlias = Callable[[Assessment], _Outcome | None]


def evaluate(
    interaction: Interaction, settings: AutoConfirmSettings, knowledge: Knowledge
) -> EngineDecision:
    """Decide about a call that was escalated.

    Raises:
        KernelError: nothing escalated it, or the time has no zone. The call is denied then.
    """
    return decide(assess(interaction, settings, knowledge))


def assess(
    interaction: Interaction, settings: AutoConfirmSettings, knowledge: Knowledge
) -> Assessment:
    """Collect the knowledge about a call.

    Raises:
        KernelError: as for `evaluate`.
    """
    if not interaction.origins:
        raise KernelError("the engine was asked about a call that nothing escalated")
    subject = subject_of(interaction)
    rows = rows_of(interaction, subject, settings)
    risk = risk_of(interaction, subject, rows, knowledge)
    return Assessment(
        interaction=interaction,
        settings=settings,
        knowledge=knowledge,
        subject=subject,
        rows=rows,
        verdict=verdict_of(interaction, subject, rows, settings),
        risk=risk,
        confidence=confidence_of(interaction, subject, risk, knowledge),
        context=interaction.context,
        is_night=settings.night_mode.is_on(knowledge.moment),
    )


def decide(found: Assessment) -> EngineDecision:
    """Ask the checks in order."""
    for name, check in CHECKS:
        outcome = check(found)
        if outcome is not None:
            return _decision(found, name, outcome)
    reason = f"confidence={found.confidence.hundredths}%, risk={found.risk.hundredths}%"
    return _decision(found, "default", _Outcome("escalate", f"Uncertain case ({reason})"))


def _switched_off(found: Assessment) -> _Outcome | None:
    return None if found.settings.enabled else _Outcome("escalate", "Auto-confirm is off")


def _deployment(found: Assessment) -> _Outcome | None:
    if not found.knowledge.deployment:
        return None
    return _Outcome("held", "Deployment - holding for review")


def _exact_pattern(found: Assessment) -> _Outcome | None:
    subject, session_type = found.subject, found.interaction.session_type
    matches = subject.exact and any(
        pattern.approves(subject.operation, subject.scopes, session_type)
        for pattern in found.knowledge.patterns
    )
    if matches and _may_approve(found):
        return _Outcome("approve", "Exact pattern match")
    return None


def _safety_rule(found: Assessment) -> _Outcome | None:
    verdict = found.verdict
    if verdict.word == "escalate":
        reason = f"Safety rule requires escalation: {verdict.name}"
        return _Outcome("escalate", reason, verdict.target)
    if verdict.word == "approve" and _may_approve(found) and _is_within_its_band(found):
        return _Outcome("approve", f"Safety rule: {verdict.name}")
    return None


def _high_risk(found: Assessment) -> _Outcome | None:
    if found.risk.hundredths <= MEDIUM_AT_MOST:
        return None
    return _Outcome("escalate", "High risk")


def _provider_mismatch(found: Assessment) -> _Outcome | None:
    if found.interaction.provider_mismatch:
        return _Outcome("escalate", "Provider mismatch")
    return _Outcome("escalate", "Unusual pattern") if found.interaction.unusual else None


def _high_confidence(found: Assessment) -> _Outcome | None:
    if found.confidence.hundredths <= _SURE:
        return None
    return _approved(found, f"High confidence ({found.confidence.hundredths}%)")


def _context_match(found: Assessment) -> _Outcome | None:
    if not found.context.exceeds(_SURE):
        return None
    return _approved(found, f"Context match {found.context.hundredths}%")


def _night(found: Assessment) -> _Outcome | None:
    if not found.is_night:
        return None
    action: EngineAction = "held" if found.settings.night_mode.action == "hold" else "escalate"
    target = found.settings.escalation_targets.high_risk
    return _Outcome(action, "Night mode - escalating for safety", target)


def _testing_window(found: Assessment) -> _Outcome | None:
    is_low = found.risk.hundredths <= LOW_AT_MOST
    if found.knowledge.testing and is_low and _may_approve(found):
        return _Outcome("approve", "Testing window")
    return None


def _load_relief(found: Assessment) -> _Outcome | None:
    depth = found.knowledge.queue_depth
    if (
        found.settings.load_relief
        and depth > _LONG_QUEUE
        and found.risk.hundredths < _RELIEF_BELOW
        and _may_approve(found)
    ):
        return _Outcome("approve", f"Auto-approve under load (queue={depth})")
    return None


def _doing_well(found: Assessment) -> _Outcome | None:
    return _approved(found, "Session doing well") if found.knowledge.health == "well" else None


def _unknown_operation(found: Assessment) -> _Outcome | None:
    if (
        not found.subject.understood
        and found.settings.unknown == "conditional"
        and found.risk.hundredths <= LOW_AT_MOST
        and found.confidence.hundredths >= _SURE_ENOUGH_WITH_SAFEGUARDS
        and _has_safeguards(found)
        and _is_trusted(found)
    ):
        return _Outcome("conditional", "Unknown operation with safeguards")
    return None


CHECKS: Final[tuple[tuple[EngineCheck, _CheckFunction], ...]] = (
    ("switched-off", _switched_off),
    ("deployment", _deployment),
    ("pattern", _exact_pattern),
    ("safety-rule", _safety_rule),
    ("risk", _high_risk),
    ("provider", _provider_mismatch),
    ("confidence", _high_confidence),
    ("context", _context_match),
    ("night", _night),
    ("testing", _testing_window),
    ("load", _load_relief),
    ("health", _doing_well),
    ("unknown", _unknown_operation),
)
"""The checks in order; if none answers, a reviewer decides."""


def _approved(found: Assessment, reason: str) -> _Outcome | None:
    """Return the approval by risk: low without safeguards, medium with all of them."""
    if not _may_approve(found):
        return None
    if found.risk.hundredths <= LOW_AT_MOST:
        return _Outcome("approve", reason)
    return _Outcome("conditional", reason) if _has_safeguards(found) else None


def _may_approve(found: Assessment) -> bool:
    return found.subject.understood and _is_trusted(found)


def _is_trusted(found: Assessment) -> bool:
    interaction = found.interaction
    return (
        found.verdict.word != "escalate"
        and found.risk.hundredths <= MEDIUM_AT_MOST
        and interaction.session_type != "unknown"
        and found.knowledge.health in {"well", "normal"}
        and not interaction.provider_mismatch
        and not interaction.unusual
    )


def _has_safeguards(found: Assessment) -> bool:
    return found.interaction.sandboxed and found.interaction.snapshot


def _is_within_its_band(found: Assessment) -> bool:
    """Return whether the risk stays within the band of the rows that approve."""
    is_low = all(row is not None and row.level == "LOW" for row in found.rows)
    return found.risk.hundredths <= (LOW_AT_MOST if is_low else MEDIUM_AT_MOST)


def _decision(found: Assessment, check: EngineCheck, outcome: _Outcome) -> EngineDecision:
    approves = outcome.action in ("approve", "conditional")
    risk = found.risk.hundredths
    route = route_of(found.interaction, found.subject, risk, found.settings)
    target = outcome.target or route.target
    chain = reviewer_chain(target, found.interaction, found.rows, found.settings)
    is_critical = not approves and risk > HIGH_AT_MOST
    return EngineDecision(
        action="held" if is_critical else outcome.action,
        check=check,
        reason=outcome.reason,
        target=None if approves else chain[0],
        fallback=chain[1] if len(chain) > 1 and not approves else None,
        priority=None if approves else route.priority,
        alert=is_critical,
        operation=found.subject.operation,
        rows=tuple(dict.fromkeys(row.key for row in found.rows if row is not None)),
        verdict=found.verdict.word,
        risk=risk,
        band=found.risk.band,
        confidence=found.confidence.hundredths,
        context_score=found.context.hundredths,
        factors=found.risk.factors,
        confidence_factors=found.confidence.factors,
        safeguards=SAFEGUARDS if outcome.action == "conditional" else (),
        taken_back=tuple(dict.fromkeys(row.taken_back for row in found.rows if row is not None)),
    )
