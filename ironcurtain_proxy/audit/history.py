"""The recorded calls of a user, as the reviewer's screens show them. Reads only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.audit.display import LogEntry
from ironcurtain_proxy.audit.family import Member
from ironcurtain_proxy.audit.finding import find_calls, lines_of
from ironcurtain_proxy.audit.selection import Selection
from ironcurtain_proxy.audit.tailing import last_calls

MOST_CALLS: Final = 200


@dataclass(frozen=True, slots=True)
class CallHistory:
    """The calls that were recorded."""

    members: Callable[[], tuple[Member, ...]]
    """Gives the logs that exist now."""
    when: Callable[[str], str]
    """Turns a record's time into local time."""

    def calls(self, chosen: Selection) -> list[LogEntry]:
        """The last chosen calls, newest first.

        Raises:
            OSError: a log cannot be read.
        """
        return last_calls(self.members(), MOST_CALLS, chosen)[::-1]

    def call(self, number: str) -> list[str]:
        """The record of a call in lines; empty: there is no such call.

        Raises:
            OSError: a log cannot be read.
        """
        calls = find_calls(self.members(), number)
        return lines_of(calls[0]) if len(calls) == 1 else []
