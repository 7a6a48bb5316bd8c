"""Notices, in fixed words: wanted reviews, summaries of approvals, abandoned reviewers.

A notice has few, harmless characters and no text of a call: a model may read it, and such a text
could be a prompt injection.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths
from ironcurtain_proxy.model.values import Json

MAX_WORD: Final = 100
"""Characters."""

# No blank, no quote, and none of `#`, `%` and `$`: tmux runs the command in `#(…)`.
_HARMFUL: Final = re.compile(r"[^A-Za-z0-9._:@/+-]", re.ASCII)

_ESCALATION: Final = "permission_escalation"
_SUMMARY: Final = "permission_summary"
_LOST: Final = "reviewer_given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewNotice:
    """A review is wanted."""

    interaction_id: str
    operation: str
    target: str
    priority: int

    def as_json(self) -> dict[str, Json]:
        """Return the notice for programs."""
        return {
            "type": _ESCALATION,
            "interaction_id": self.interaction_id,
            "operation": self.operation,
            "target": self.target,
            "priority": self.priority,
        }

    def as_text(self) -> str:
        """Return the notice for a person, on one line."""
        return (
            f"Permission review required: {self.operation} ({self.interaction_id}), "
            f"for {self.target}, priority {self.priority}"
        )

    def as_arguments(self) -> tuple[str, ...]:
        """Return the arguments for a command: the id and the operation."""
        return (self.interaction_id, self.operation)


class SummaryNotice(Struct, frozen=True, kw_only=True):
    """A summary of the engine's own approvals."""

    target: str
    since: str
    """The last summary, or the session's start: ISO 8601, UTC, to the second."""
    operations: tuple[tuple[str, int], ...]
    """The number of calls of each operation, the most frequent first."""
    highest_risk: Hundredths

    @property
    def approved(self) -> int:
        """The number of calls."""
        return sum(count for _, count in self.operations)

    def as_json(self) -> dict[str, Json]:
        """Return the notice for programs."""
        return {
            "type": _SUMMARY,
            "target": self.target,
            "since": self.since,
            "approved": self.approved,
            "operations": dict(self.operations),
            "highest_risk": self.highest_risk / 100,
        }

    def as_text(self) -> str:
        """Return the notice for a person, on one line."""
        each = ", ".join(f"{name} {count}" for name, count in self.operations)
        return (
            f"Permissions approved since {self.since}: {self.approved} ({each}), "
            f"highest risk {self._risk()}, for {self.target}"
        )

    def as_arguments(self) -> tuple[str, ...]:
        """Return the arguments for a command: a word instead of an id, then the figures."""
        each = ",".join(f"{name}={count}" for name, count in self.operations)
        return (_SUMMARY, str(self.approved), each, self._risk(), self.since)

    def _risk(self) -> str:
        return f"{self.highest_risk / 100:.2f}"


class LostNotice(Struct, frozen=True, kw_only=True):
    """A reviewer is abandoned."""

    reviewer: str

    def as_json(self) -> dict[str, Json]:
        """Return the notice for programs."""
        return {"type": _LOST, "reviewer": self.reviewer}

    def as_text(self) -> str:
        """Return the notice for a person, on one line."""
        return f"Reviewer {self.reviewer} is given up: it ended again and again"

    def as_arguments(self) -> tuple[str, ...]:
        """Return the arguments for a command: a word instead of an id, then the name."""
        return (_LOST, self.reviewer)


EngineNotice: TypeAlias = ReviewNotice | SummaryNotice | LostNotice


def review_notice(
    *, interaction_id: str, operation: str, target: str, priority: int
) -> ReviewNotice:
    """Make a notice from any texts."""
    return ReviewNotice(
        interaction_id=_word(interaction_id),
        operation=_word(operation),
        target=_word(target),
        priority=priority,
    )


def lost_notice(reviewer: str) -> LostNotice:
    """Make a notice from any reviewer's name."""
    return LostNotice(reviewer=_word(reviewer))


def summary_notice(
    *, target: str, since: datetime, counts: Iterable[tuple[str, int]], highest_risk: Hundredths
) -> SummaryNotice:
    """Make a notice from counted approvals.

    Args:
        target: who is told, by the operator's name.
        since: aware.
        counts: operations, and how many calls of each were approved.
        highest_risk: of any of them.
    """
    ranked = sorted(counts, key=lambda item: (-item[1], item[0]))
    return SummaryNotice(
        target=_word(target),
        since=since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        operations=tuple([(_word(operation), count) for operation, count in ranked]),
        highest_risk=highest_risk,
    )


def _word(text: str) -> str:
    # A leading hyphen would make the argument an option.
    return _HARMFUL.sub("?", text[:MAX_WORD]).lstrip("-") or "?"
