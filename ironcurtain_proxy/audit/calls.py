"""The calls of logs one by one, oldest first within a log. Reads only."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ironcurtain_proxy.audit.display import LogEntry, entry_of
from ironcurtain_proxy.audit.family import Member
from ironcurtain_proxy.audit.files import parsed
from ironcurtain_proxy.audit.reading import read_lines
from ironcurtain_proxy.audit.selection import Selection


class RecordedCall(NamedTuple):
    """The last record of a call: its outcome, or its intent if it has no outcome."""

    fields: Mapping[str, object]
    entry: LogEntry


def recorded_calls(members: tuple[Member, ...], chosen: Selection) -> Iterator[RecordedCall]:
    """The chosen calls of several logs, log by log; calls without an outcome stand last.

    Raises:
        OSError: a log cannot be read.
    """
    for member in members:
        started: dict[str, RecordedCall] = {}
        for line in read_lines(member.path):
            fields = None if line.raw is None else parsed(line.raw)
            if fields is None:
                continue
            call = RecordedCall(fields, entry_of(fields, member.process))
            if call.entry.is_intent:
                started[call.entry.request_id] = call
                continue
            started.pop(call.entry.request_id, None)
            if chosen.matches(call.entry):
                yield call
        yield from [call for call in started.values() if chosen.matches(call.entry)]
