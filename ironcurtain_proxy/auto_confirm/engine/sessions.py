"""Sessions as parties: who asks, and who reviews."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

SessionType: TypeAlias = Literal["worker", "manager", "architect", "high-level", "codex", "unknown"]
"""The type of session that the operator registered. Never read from a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A session that asks or reviews."""

    session: str
    session_type: SessionType
