"""One call in the logs, by its number or by the beginning of its id. Reads only."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ironcurtain_proxy.audit.display import details
from ironcurtain_proxy.audit.family import Member, read_number
from ironcurtain_proxy.audit.files import parsed
from ironcurtain_proxy.audit.reading import Line, lines_with


@dataclass(slots=True)
class Call:
    """The records of one call: its intent, if it had one, and its outcome."""

    request_id: str
    lines: list[Line] = field(default_factory=list)


def find_calls(members: tuple[Member, ...], reference: str) -> list[Call]:
    """The calls that a reference may mean.

    Args:
        members: the logs.
        reference: a number as `tail` shows it, `17` or `4711:17`; else an id or its beginning.
            A bare number is a line of the first log that has one of this number.

    Raises:
        OSError: a log cannot be read.
    """
    number = read_number(reference)
    if number is not None:
        process, seq = number
        for member in members:
            if process is not None and member.process != process:
                continue
            found = _by_number(member, seq)
            if found:
                return found
    return [] if not reference else _by_id(members, reference)


def _by_number(member: Member, seq: int) -> list[Call]:
    lines = [
        (line, fields)
        for line, fields in _records_with(member, b'"seq":%d' % seq)
        if fields.get("seq") == seq
    ]
    calls: list[Call] = []
    for line, fields in lines:
        request = fields.get("requestId")
        if isinstance(request, str) and request:
            calls += [call for call in _by_id((member,), request) if call.request_id == request]
        else:
            calls.append(Call("", [line]))
    # A log that was tampered with can have a number twice.
    return list({(call.request_id, call.lines[0].where): call for call in calls}.values())


def _by_id(members: tuple[Member, ...], beginning: str) -> list[Call]:
    calls: dict[str, Call] = {}
    for member in members:
        for line, fields in _records_with(member, beginning.encode()):
            request = fields.get("requestId")
            if isinstance(request, str) and request.startswith(beginning):
                calls.setdefault(request, Call(request)).lines.append(line)
    exact = calls.get(beginning)
    return [*calls.values()] if exact is None else [exact]


def _records_with(member: Member, needle: bytes) -> Iterator[tuple[Line, dict[str, object]]]:
    for line in lines_with(member.path, needle):
        fields = parsed(line.raw or b"")
        if fields is not None:
            yield line, fields


def lines_of(call: Call) -> list[str]:
    """All records of a call, for people: each after its file and line."""
    lines: list[str] = []
    for line in call.lines:
        lines += [line.where, *details(parsed(line.raw or b"") or {}), ""]
    return lines
