"""Patterns that the operator promoted: an operation that is approved on certain paths.

Every condition must hold for everything that the call names. Conditions are not weighed: a pattern
that matches by two of four would approve any path.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.engine.path_patterns import PathRegex
from ironcurtain_proxy.auto_confirm.engine.sessions import SessionType

RiskBand: TypeAlias = Literal["SAFE", "LOW", "MEDIUM", "HIGH", "CRITICAL"]
"""SAFE [0, 0.2), LOW [0.2, 0.4], MEDIUM (0.4, 0.7], HIGH (0.7, 0.9], CRITICAL (0.9, 1]."""

SAFE_BANDS: Final[tuple[RiskBand, ...]] = ("SAFE", "LOW")
"""The bands of operations that the engine is meant to approve."""
HIGH_BANDS: Final[tuple[RiskBand, ...]] = ("HIGH", "CRITICAL")
"""The bands that always go to a reviewer; no pattern approves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPattern:
    """A row of `approval_patterns`, its expression compiled."""

    name: str
    operation: OperationKind
    scope: PathRegex | None = None
    """The scope as a path pattern; None: any scope, which is never an exact match."""
    session_type: SessionType | None = None
    """The type of session; None: every known type."""
    risk_level: RiskBand | None = None
    """The operator's estimate; the computed risk of the call counts as well."""
    auto_approve: bool = False

    def knows(
        self, operation: OperationKind, scopes: tuple[str, ...], session_type: SessionType
    ) -> bool:
        """Whether the pattern covers such calls, approved or not."""
        if operation == "unknown" or operation != self.operation:
            return False
        if self.session_type is not None and self.session_type != session_type:
            return False
        if self.scope is None:
            return not scopes
        return bool(scopes) and all(self.scope.fullmatch(scope) for scope in scopes)

    def approves(
        self, operation: OperationKind, scopes: tuple[str, ...], session_type: SessionType
    ) -> bool:
        """Whether the pattern matches exactly and is enabled."""
        return (
            self.auto_approve
            and self.scope is not None
            and self.risk_level not in HIGH_BANDS
            and self.knows(operation, scopes, session_type)
        )
