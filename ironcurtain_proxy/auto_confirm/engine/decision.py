"""The engine's decision and its reasons, for the record, and the end of unanswered questions.

The engine never denies: a reviewer decides on calls that it does not approve.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths
from ironcurtain_proxy.auto_confirm.engine.matrix import MatrixWord
from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.engine.patterns import RiskBand
from ironcurtain_proxy.auto_confirm.engine.risk import LOW_AT_MOST, Factor
from ironcurtain_proxy.auto_confirm.engine.safety_rules import Priority
from ironcurtain_proxy.auto_confirm.engine.settings import AutoConfirmSettings, TimeoutAction
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.decider import Engine
from ironcurtain_proxy.model.escalation import Origin
from ironcurtain_proxy.model.json import Json

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDecision:
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
        roles: the argument roles that escalated. None: the rule was about the whole call.
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
