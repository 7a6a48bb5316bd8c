"""Calls of the audit log for the page. Reads only."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from ironcurtain_proxy.audit.calls import recorded_calls
from ironcurtain_proxy.audit.display import LogEntry, printable
from ironcurtain_proxy.audit.family import Member
from ironcurtain_proxy.audit.finding import find_calls, lines_of
from ironcurtain_proxy.audit.selection import Selection
from ironcurtain_proxy.audit.tailing import last_calls
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.report.calls_part import calls_part
from ironcurtain_proxy.report.day import count_calls
from ironcurtain_proxy.report.page import part_of_page

MOST_CALLS: Final = 200


class UserLogs:
    """The audit logs of a user."""

    def __init__(
        self, members: Callable[[], tuple[Member, ...]], local: Callable[[str], str]
    ) -> None:
        """Set up without reading.

        Args:
            members: gives the logs that there are now.
            local: a record's time as the clock on the wall showed it.
        """
        self._members = members
        self._local = local

    def calls(self, chosen: Selection) -> list[Json]:
        """The last chosen calls, newest first.

        Raises:
            OSError: a log cannot be read.
        """
        found = last_calls(self._members(), MOST_CALLS, chosen)
        return [self._row(entry) for entry in reversed(found)]

    def call(self, reference: str) -> list[str]:
        """The record of a call as lines; empty: there is no such call.

        Raises:
            OSError: a log cannot be read.
        """
        calls = find_calls(self._members(), reference)
        return lines_of(calls[0]) if len(calls) == 1 else []

    def day(self, chosen: Selection, now: datetime) -> str:
        """The plots and tables of the report, as markup.

        Raises:
            OSError: a log cannot be read.
        """
        day = count_calls(recorded_calls(self._members(), chosen))
        return part_of_page(calls_part(day, now, self._local))

    def _row(self, entry: LogEntry) -> Json:
        return {
            "number": entry.number,
            "time": self._local(entry.time),
            "decision": entry.decision,
            "by": printable(entry.by),
            "tool": printable(entry.tool),
            "argument": printable(entry.argument),
            "rule": printable(entry.rule),
            "outcome": printable(entry.outcome),
            "client": printable(entry.client),
        }
