"""Limits on the LLM approver: what switches it off, or excludes it from one question.

Knows counts and times, nothing of models, messages or files. Lives as long as a session.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, TypeVar

from ironcurtain_proxy.mailbox.user_message import UserMessage

_K = TypeVar("_K")
_V = TypeVar("_V")

_log = logging.getLogger(__name__)

_MINUTE: Final = 60.0
_JUST_SECONDS: Final = 300.0
"""The least time for which a person's denial keeps the auto-approver from the same call."""
_MOST_REMEMBERED: Final = 4096


@dataclass(slots=True, kw_only=True)
class Breakers:
    """The limits in one session."""

    outages: int
    """Failures in a row after which the model is not asked again."""
    approvals_per_minute: int
    off_because: str | None = field(default=None, init=False)
    _outages: int = field(default=0, init=False)
    _approved_at: deque[float] = field(default_factory=deque, init=False)
    _used: dict[bytes, None] = field(default_factory=dict, init=False)
    _denied: dict[str, tuple[float, str]] = field(default_factory=dict, init=False)
    _would_approve: dict[str, None] = field(default_factory=dict, init=False)
    _turn: str = field(default="", init=False)

    def note_turn(self, message: UserMessage) -> None:
        """Note the current message."""
        self._turn = message.turn

    def note_outage(self, why: str) -> None:
        """Note that the model could not be asked."""
        self._outages += 1
        if self._outages >= self.outages:
            self._switch_off(f"the model failed {self._outages} times in a row, lastly: {why}")

    def note_answer(self) -> None:
        """Note that the model answered."""
        self._outages = 0

    def note_would_approve(self, fingerprint: str) -> None:
        """Note that the model would have approved, and something else prevented it."""
        _remember(self._would_approve, fingerprint, None)

    def note_denied_by_person(self, fingerprint: str, now: float) -> None:
        """Note that a person refused a call."""
        _remember(self._denied, fingerprint, (now, self._turn))
        if fingerprint in self._would_approve:
            self._switch_off("a person denied a call that it would have approved")

    def was_just_denied(self, fingerprint: str, now: float) -> bool:
        """Whether a person refused the same call in this turn or a moment ago."""
        denied = self._denied.get(fingerprint)
        if denied is None:
            return False
        at, turn = denied
        if not turn:
            # Denied before any message was read: it was about the one that is read now.
            self._denied[fingerprint] = (at, self._turn)
            return True
        return now - at < _JUST_SECONDS or turn == self._turn

    def is_used(self, message: UserMessage, operations: Sequence[str]) -> bool:
        """Whether the message has approved one of these operations already; it does so once."""
        return any(_digest(message, one) in self._used for one in operations)

    def may_approve(self, now: float) -> bool:
        """Whether the limit for this minute allows one more approval."""
        while self._approved_at and now - self._approved_at[0] >= _MINUTE:
            self._approved_at.popleft()
        return len(self._approved_at) < self.approvals_per_minute

    def note_approval(self, message: UserMessage, operations: Sequence[str], now: float) -> None:
        """Count one approval."""
        self._approved_at.append(now)
        for one in operations:
            _remember(self._used, _digest(message, one), None)

    def _switch_off(self, why: str) -> None:
        if self.off_because is None:
            self.off_because = why
            _log.warning("the auto-approver is off for the rest of this session: %s", why)


def _remember(known: dict[_K, _V], key: _K, value: _V) -> None:
    known[key] = value
    if len(known) > _MOST_REMEMBERED:
        del known[next(iter(known))]


def _digest(message: UserMessage, operation: str) -> bytes:
    return sha256(repr((message.turn, message.text, operation)).encode(errors="replace")).digest()
