"""What the engine decided, and why, so that it can be read back. Pure: no I/O, no clock, no log.

There is no word for a denial: what is not approved is for a reviewer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths
from ironcurtain_proxy.auto_confirm.engine.matrix import MatrixWord
from ironcurtain_proxy.auto_confirm.engine.operations import Operation
from ironcurtain_proxy.auto_confirm.engine.risk import (
    HIGH_AT_MOST,
    MEDIUM_AT_MOST,
    Factor,
    RiskBand,
    band_of,
)
from ironcurtain_proxy.auto_confirm.engine.routing import Priority
from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.json import Json

EngineAction: TypeAlias = Literal["approve", "conditional", "escalate", "held"]
"""`conditional`: approved, with every safeguard. `held`: a reviewer decides, nobody goes on."""

Check: TypeAlias = Literal[
    "switched-off", "held", "deployment", "pattern", "safety-rule", "risk", "provider",
    "confidence", "context", "night", "testing", "load", "health", "unknown", "default",
]  # fmt: skip
"""What decided, in the order in which it is asked."""

Safeguard: TypeAlias = Literal["sandbox", "rollback", "logging", "monitoring"]
SAFEGUARDS: Final[tuple[Safeguard, ...]] = get_args(Safeguard)
"""What a conditional approval needs: all of them."""

_ACTIONS: Final[tuple[EngineAction, ...]] = get_args(EngineAction)
_CHECKS: Final[tuple[Check, ...]] = get_args(Check)
_OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)
_VERDICTS: Final[tuple[MatrixWord, ...]] = get_args(MatrixWord)
_BANDS: Final[tuple[RiskBand, ...]] = get_args(RiskBand)
_PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
_CERTAIN: Final = 100
_Word = TypeVar("_Word")

_APPROVALS: Final[frozenset[EngineAction]] = frozenset({"approve", "conditional"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDecision:
    """One decision. Scores in hundredths."""

    action: EngineAction
    check: Check
    reason: str
    target: str | None = None
    """Who reviews; None: nobody needs to."""
    fallback: str | None = None
    """Who reviews if the target is silent; None: nobody else."""
    priority: Priority | None = None
    alert: bool = False
    operation: Operation
    rows: tuple[str, ...] = ()
    """The matrix rows that the call falls under."""
    verdict: MatrixWord = "evaluate"
    """What the safety rules say of it."""
    risk: Hundredths
    band: RiskBand
    confidence: Hundredths
    context_score: Hundredths
    factors: tuple[Factor, ...]
    """What the risk is made of."""
    confidence_factors: tuple[Factor, ...]
    safeguards: tuple[Safeguard, ...] = ()

    @property
    def approves(self) -> bool:
        """Whether the call may go without a reviewer."""
        return self.action in _APPROVALS

    @property
    def decided_by(self) -> str:
        """For the record."""
        return f"engine:{self.check}"

    def as_json(self) -> dict[str, Json]:
        """The decision for the record; `from_json` reads it back."""
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
        }
        if self.approves:
            record["auto"] = True
        return record


def from_json(record: Mapping[str, Json]) -> EngineDecision:
    """Read a decision back.

    Raises:
        KernelError: it is not the record of a decision.
    """
    target, fallback = record.get("target"), record.get("fallback")
    priority = record.get("priority")
    return EngineDecision(
        action=_one_of(record.get("action"), _ACTIONS),
        check=_one_of(record.get("check"), _CHECKS),
        reason=_text(record.get("reason")),
        target=None if target is None else _text(target),
        fallback=None if fallback is None else _text(fallback),
        priority=None if priority is None else _one_of(priority, _PRIORITIES),
        alert=record.get("alert") is True,
        operation=_one_of(record.get("operation"), _OPERATIONS),
        rows=tuple([_text(row) for row in _items(record, "rows")]),
        verdict=_one_of(record.get("verdict"), _VERDICTS),
        risk=_hundredths(record.get("risk")),
        band=_one_of(record.get("band"), _BANDS),
        confidence=_hundredths(record.get("confidence")),
        context_score=_hundredths(record.get("contextScore")),
        factors=_read(record, "factors"),
        confidence_factors=_read(record, "confidenceFactors"),
        safeguards=SAFEGUARDS if _items(record, "safeguards") else (),
    )


def replay(record: Mapping[str, Json]) -> EngineDecision:
    """Read a decision back and work out again what follows from what it rests on.

    Raises:
        KernelError: it is not a record, or contradicts itself.
    """
    decision = from_json(record)
    holds = {
        "risk": decision.risk == sum(contribution for _, contribution in decision.factors),
        "confidence": decision.confidence
        == sum(contribution for _, contribution in decision.confidence_factors),
        "band": decision.band == band_of(decision.risk),
        "action": not decision.approves
        or (decision.risk <= MEDIUM_AT_MOST and decision.verdict != "escalate"),
        "alert": decision.alert == (not decision.approves and decision.risk > HIGH_AT_MOST),
        "target": decision.approves == (decision.target is None),
        "priority": decision.approves == (decision.priority is None),
        "safeguards": (decision.action == "conditional") == bool(decision.safeguards),
        "record": decision.as_json() == dict(record),
    }
    wrong = [name for name, is_so in holds.items() if not is_so]
    if wrong:
        raise KernelError(f"the record of a decision contradicts itself: {', '.join(wrong)}")
    return decision


def _written(factors: tuple[Factor, ...]) -> list[Json]:
    return [{"name": name, "contribution": value / _CERTAIN} for name, value in factors]


def _read(record: Mapping[str, Json], key: str) -> tuple[Factor, ...]:
    found: list[Factor] = []
    for item in _items(record, key):
        if not isinstance(item, dict):
            raise _broken(key)
        found.append((_text(item.get("name")), _signed(item.get("contribution"))))
    return tuple(found)


def _items(record: Mapping[str, Json], key: str) -> list[Json]:
    value = record.get(key)
    if not isinstance(value, list):
        raise _broken(key)
    return value


def _one_of(value: Json, words: tuple[_Word, ...]) -> _Word:
    for word in words:
        if type(value) is type(word) and value == word:
            return word
    raise _broken("a word that is not known")


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise _broken("a text")
    return value


def _signed(value: Json) -> Hundredths:
    # NaN and the infinities fail the comparison.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= 1:
        raise _broken("a score")
    return round(value * _CERTAIN)


def _hundredths(value: Json) -> Hundredths:
    hundredths = _signed(value)
    if hundredths < 0:
        raise _broken("a score")
    return hundredths


def _broken(what: str) -> KernelError:
    return KernelError(f"the record of a decision cannot be read: {what}")
