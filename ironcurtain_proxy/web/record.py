"""Calls of the audit log for the page. Reads only."""

from collections.abc import Mapping
from datetime import datetime

from ironcurtain_proxy.audit.calls import CallHistory, recorded_calls
from ironcurtain_proxy.audit.display import LogEntry, printable
from ironcurtain_proxy.audit.selection import Selection
from ironcurtain_proxy.report.day import calls_part, count_calls
from ironcurtain_proxy.report.page import part_of_page


def day_of(history: CallHistory, chosen: Selection, now: datetime) -> str:
    """The plots and tables of the report, as markup.

    Raises:
        OSError: a log cannot be read.
    """
    day = count_calls(recorded_calls(history.members(), chosen))
    return part_of_page(calls_part(day, now, history.when))


def row_of(entry: LogEntry, history: CallHistory) -> Mapping[str, str]:
    """A call as the page lists it."""
    names = ("by", "tool", "argument", "rule", "outcome", "client")
    return {
        "number": entry.number,
        "time": history.when(entry.time),
        "decision": entry.decision,
        **{name: printable(getattr(entry, name)) for name in names},
    }
