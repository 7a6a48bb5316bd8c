"""Calls as CSV, a row each.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, and a formula can
send what other cells hold. Arguments and messages are an agent's words, so an apostrophe is put
before such a cell.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from ironcurtain_proxy.audit.calls import RecordedCall
from ironcurtain_proxy.audit.display import LogEntry, printable
from ironcurtain_proxy.model.vocabulary import word_list

COLUMNS: Final = word_list(
    """
    number time decision by server tool rule argument outcome status duration_ms waited_ms calls
    session client request_id
    """
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def as_csv(calls: Iterable[RecordedCall]) -> Iterator[bytes]:
    """The header, then the calls: lines as RFC 4180 has them."""
    yield _line(COLUMNS)
    for call in calls:
        yield _line(_cells(call.entry))


def _cells(entry: LogEntry) -> tuple[str, ...]:
    server, _, tool = entry.tool.partition("/")
    texts = (
        entry.number,
        entry.time,
        entry.decision,
        entry.by,
        server,
        tool,
        entry.rule,
        entry.argument,
        entry.outcome,
        entry.status,
    )
    numbers = (entry.duration_ms, entry.waited_ms, entry.calls)
    return (
        *[_inert(one) for one in texts],
        *[str(one) for one in numbers],
        *[_inert(one) for one in (entry.session, entry.client, entry.request_id)],
    )


def _inert(text: str) -> str:
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _line(cells: Iterable[str]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerow(cells)
    return written.getvalue().encode()
