"""A selection of calls of the audit log."""

from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final

from ironcurtain_proxy.audit.display import LogEntry, ended_at

REFUSALS: Final = frozenset({"DENIED", "REFUSED", "HELD"})
"""The decisions after which no server got the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The conditions of a selection; an empty one holds for every call."""

    since: datetime | None = None
    """Aware: the call ended at this time or later."""
    until: datetime | None = None
    """Aware: the call ended before this time."""
    decisions: frozenset[str] = frozenset()
    """Words of the column DECISION: `allowed`, `approved`, `DENIED`, `REFUSED`, `HELD`."""
    by: str = ""
    """A word of the column BY, such as `person`."""
    tool: str = ""
    """`SERVER/TOOL`, with `*` for any characters; without a slash, a tool of any server."""
    server: str = ""
    client: str = ""
    """The beginning of the client's name."""
    session: str = ""
    """The beginning of the session's id."""
    text: str = ""
    """Stands in the tool, the rule, the main argument or the outcome; capitals do not count."""

    @property
    def is_everything(self) -> bool:
        """Whether there is no condition."""
        return self == Selection()

    def matches(self, entry: LogEntry) -> bool:
        """Whether the call of this record is chosen."""
        return (
            self._is_in_time(entry)
            and (not self.decisions or entry.decision in self.decisions)
            and (not self.by or entry.by == self.by)
            and self._is_of(entry)
            and entry.client.startswith(self.client)
            and entry.session.startswith(self.session)
            and (not self.text or self._holds(entry, self.text.casefold()))
        )

    def _is_in_time(self, entry: LogEntry) -> bool:
        if self.since is None and self.until is None:
            return True
        ended = ended_at(entry)
        return (self.since is None or ended >= self.since.timestamp()) and (
            self.until is None or ended < self.until.timestamp()
        )

    def _is_of(self, entry: LogEntry) -> bool:
        if self.server and entry.tool.partition("/")[0] != self.server:
            return False
        if not self.tool:
            return True
        pattern = self.tool if "/" in self.tool else f"*/{self.tool}"
        return fnmatchcase(entry.tool, pattern)

    @staticmethod
    def _holds(entry: LogEntry, text: str) -> bool:
        told = (entry.tool, entry.rule, entry.argument, entry.outcome)
        return any(text in one.casefold() for one in told)
