"""Who asks and who reviews."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

SessionType: TypeAlias = Literal["worker", "manager", "architect", "high-level", "codex", "unknown"]
"""What kind of session the operator registered. Never read from a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A session in one of the two parts."""

    session: str
    session_type: SessionType
