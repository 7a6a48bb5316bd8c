"""Records on their way to other machines and programs: shipped at least once, exported by format.

Numbers of records continue across rotated files, so (machine, log, number) identifies a record. The
file `audit.jsonl.shipped` beside the log holds the last record that a destination accepted, and the
offset after it. It is written after the destination has answered. A process that is killed in
between sends the same records again, and the receiver recognises them by their numbers.

    records   the lines as they are, into a directory that others read: DIR/MACHINE.LOG.jsonl
    otlp      to a collector of OpenTelemetry, for example https://collector:4318/v1/logs
    ocsf      events of the Open Cybersecurity Schema Framework, to any receiver of JSON lines

Calls in the formats of other programs: CSV, the Open Cybersecurity Schema Framework, OTLP.
"""

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, BinaryIO, Final, Literal, TypeAlias

import orjson
from msgspec import DecodeError, Meta, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from ironcurtain_proxy.audit.calls import RecordedCall
from ironcurtain_proxy.audit.display import REFUSALS, LogEntry, arrived_at, entry_of, printable
from ironcurtain_proxy.audit.files import MAX_LINE, files_of, lines_of, parsed, placed_of
from ironcurtain_proxy.audit.records import GENESIS, digest_of
from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.model.decision import Grants, of_record
from ironcurtain_proxy.model.reply import method_and_target
from ironcurtain_proxy.model.values import text_of, word_list
from ironcurtain_proxy.private_files import held_lock, read_regular, write_whole
from ironcurtain_proxy.version import VERSION

# --- CSV, a row each ------------------------------------------------------------------------------

COLUMNS: Final = word_list(
    """
    number time decision by server tool rule argument outcome status duration_ms waited_ms calls
    session client request_id
    """
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins so for a formula, and a formula can send what other cells
hold. Arguments and messages are an agent's words: such a cell gets an apostrophe in front."""


def as_csv(calls: Iterable[RecordedCall]) -> Iterator[bytes]:
    """Yield the header, then the calls: lines as RFC 4180 has them."""
    yield _line(COLUMNS)
    for call in calls:
        yield _line(_cells(call.entry))


def _cells(entry: LogEntry) -> Iterator[str]:
    server, _, tool = entry.tool.partition("/")
    parts = {"server": server, "tool": tool}
    for name in COLUMNS:
        yield _inert(str(parts[name] if name in parts else getattr(entry, name)))


def _inert(text: str) -> str:
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _line(cells: Iterable[str]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerow(cells)
    return written.getvalue().encode()


# --- OCSF, version 1.9.0, a JSON line each --------------------------------------------------------
# A tool call is an event of class API Activity (6003) with three profiles: Security Control says
# whether the event was let through and by which policy, Record Integrity chains the events, and the
# delegation of AI Operation is the grant that approved the call.

_VERSION: Final = "1.9.0"
_PROFILES: Final = ("security_control", "record_integrity", "ai_operation")
_SHA_256: Final = {"algorithm": "SHA-256", "algorithm_id": 3}
VENDOR: Final = "IronCurtain Proxy"
_CATEGORY: Final = 6
_CLASS: Final = 6003
_OTHER: Final = 99
"""The activity: the schema knows create, read, update and delete, and a tool call may be any."""
_ALLOWED: Final = 1
_DENIED: Final = 2
_BLOCKED: Final = 2
_INFORMATIONAL: Final = 1
_MEDIUM: Final = 3
_SUCCESS: Final = 1
_FAILURE: Final = 2
_UNKNOWN: Final = 0

_MAPPED: Final = frozenset(
    {"timestamp", "requestId", "serverName", "toolName", "arguments", "durationMs"}
)
"""Fields of a record that stand in attributes of the schema, or mean nothing outside the log."""


class EventChain(Struct):
    """The chain through the events of one log. Each names the fingerprint of the one before it.

    A fingerprint is the SHA-256 of the event as JSON with sorted keys and without blanks, and
    without the fingerprint itself.
    """

    uid: str = "ironcurtain-export"
    """Which chain it is: the machine and the log."""
    seq: int = 0
    """The number of the record of the last event."""
    last: str = ""
    """The fingerprint of the last event, or empty if there is none."""

    def attest(self, event: dict[str, object], seq: int) -> bytes:
        """Return an event as JSON with its place in the chain."""
        attestation: dict[str, object] = {"authority_uid": VENDOR, "chain_uid": self.uid}
        if self.last:
            attestation["prev_event"] = {
                "uid": f"{self.uid}:{self.seq}",
                "type_uid": _CLASS * 100 + _OTHER,
                "fingerprint": {**_SHA_256, "value": self.last},
            }
        event["attestation"] = attestation
        canonical = orjson.dumps(event, option=orjson.OPT_SORT_KEYS)
        self.seq, self.last = seq, sha256(canonical).hexdigest()
        attestation["fingerprint"] = {**_SHA_256, "value": self.last}
        return orjson.dumps(event, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def as_ocsf(calls: Iterable[RecordedCall], chain: EventChain | None = None) -> Iterator[bytes]:
    """Yield the calls as JSON lines.

    Args:
        calls: the calls.
        chain: what is known of the events before; `None` begins anew.
    """
    chain = chain or EventChain()
    for call in calls:
        seq = call.fields.get("seq")
        number = seq if isinstance(seq, int) else 0
        yield chain.attest(_event(call, f"{chain.uid}:{number}"), number)


def _event(call: RecordedCall, uid: str) -> dict[str, object]:
    fields, entry = call
    refused = entry.decision in REFUSALS
    server, _, tool = entry.tool.partition("/")
    status = {"success": _SUCCESS, "error": _FAILURE, "denied": _FAILURE}.get(entry.status)
    return {
        "metadata": {
            "version": _VERSION,
            "profiles": [*_PROFILES],
            "product": {"name": "ironcurtain-proxy", "vendor_name": VENDOR, "version": VERSION},
            "uid": uid,
            "correlation_uid": entry.request_id,
            "log_name": "audit",
        },
        "category_uid": _CATEGORY,
        "category_name": "Application Activity",
        "class_uid": _CLASS,
        "class_name": "API Activity",
        "activity_id": _OTHER,
        "activity_name": "Tool call",
        "type_uid": _CLASS * 100 + _OTHER,
        "time": int(arrived_at(entry) * 1000),
        "duration": entry.duration_ms + entry.waited_ms,
        "severity_id": _MEDIUM if refused else _INFORMATIONAL,
        "status_id": _UNKNOWN if status is None else status,
        "message": f"{entry.decision} by {entry.by}: {entry.outcome}",
        "actor": {
            "app_name": entry.client or "unknown",
            "session": {"uid": entry.session},
        },
        "src_endpoint": {"name": entry.client or "unknown"},
        "api": {
            "operation": tool,
            "service": {"name": server},
            "request": {"uid": entry.request_id, "data": fields.get("arguments")},
        },
        "action_id": _DENIED if refused else _ALLOWED,
        "disposition_id": _BLOCKED if refused else _ALLOWED,
        "policy": {"name": entry.rule or "none", "version": text_of(fields.get("policyVersion"))},
        "ai_agent": {"name": entry.client or "unknown", "instance_uid": entry.session},
        **_delegation(fields),
        "unmapped": {name: value for name, value in fields.items() if name not in _MAPPED},
    }


def _delegation(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the approval that was remembered and that settled the call, where one did."""
    who = of_record(text_of(fields.get("decidedBy")))
    if not isinstance(who, Grants) or not who.ids:
        return {}
    return {"delegation": {"uid": who.ids[0], "issuer_uid": "ironcurtain-proxy"}}


# --- OTLP -----------------------------------------------------------------------------------------
# A line is one `ExportLogsServiceRequest`: the file exporter of the OpenTelemetry Collector writes
# such lines, and its OTLP/HTTP receiver takes them at `/v1/logs`.

_BATCH: Final = 500
"""Records in a line: a collector refuses requests above 20 MiB."""
_INFO: Final = 9
_WARN: Final = 13


def as_otlp(
    calls: Iterable[RecordedCall], resource: Mapping[str, str] = MappingProxyType({})
) -> Iterator[bytes]:
    """Yield the calls as JSON lines of up to 500 log records.

    Args:
        calls: the calls.
        resource: further attributes of what all of them come from, such as the machine.
    """
    rest = iter(calls)
    while batch := list(islice(rest, _BATCH)):
        yield orjson.dumps(_request(batch, resource), option=orjson.OPT_APPEND_NEWLINE)


def _request(batch: Iterable[RecordedCall], about: Mapping[str, str]) -> dict[str, object]:
    resource = {"service.name": "ironcurtain-proxy", "service.version": VERSION, **about}
    scope = {"name": "ironcurtain_proxy.audit", "version": VERSION}
    records = [_record(call) for call in batch]
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeLogs": [{"scope": scope, "logRecords": records}],
            }
        ]
    }


def _record(call: RecordedCall) -> dict[str, object]:
    entry = call.entry
    refused = entry.decision in REFUSALS
    arrived = str(int(arrived_at(entry) * 1000) * 1_000_000)
    return {
        "timeUnixNano": arrived,
        "observedTimeUnixNano": arrived,
        "severityNumber": _WARN if refused else _INFO,
        "severityText": "WARN" if refused else "INFO",
        "body": {"stringValue": f"{entry.decision} {entry.tool}: {entry.outcome}"},
        "attributes": _attributes(_told(call.fields, entry)),
    }


def _told(fields: Mapping[str, object], entry: LogEntry) -> dict[str, object]:
    server, _, tool = entry.tool.partition("/")
    method, target = method_and_target(tool)
    return {
        "mcp.method.name": method,
        **target,
        "mcp.server.name": server,
        "session.id": entry.session,
        "client.name": entry.client,
        "ironcurtain.request_id": entry.request_id,
        "ironcurtain.seq": fields.get("seq", ""),
        "ironcurtain.prev": text_of(fields.get("prev")),
        "ironcurtain.phase": text_of(fields.get("phase")),
        "ironcurtain.decision": entry.decision,
        "ironcurtain.decided_by": entry.by,
        "ironcurtain.rule": entry.rule,
        "ironcurtain.status": entry.status,
        "ironcurtain.duration_ms": entry.duration_ms,
        "ironcurtain.waited_ms": entry.waited_ms,
        "ironcurtain.arguments": orjson.dumps(fields.get("arguments")).decode(),
    }


def _attributes(values: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value != ""]


def _value(value: object) -> dict[str, object]:
    # 64-bit integers are strings in the JSON encoding of protocol buffers.
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


# --- shipping


Style: TypeAlias = Literal["records", "otlp", "ocsf"]

_BATCH_BYTES: Final = 4 << 20
_SUFFIX: Final = "shipped"


_Number: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 62)]


class ShippingError(IronCurtainError):
    """A destination that did not take the records. They are sent again the next time."""


class Shipped(Struct, frozen=True, kw_only=True):
    """The content of the note beside a log."""

    seq: _Number = 0
    digest: str = GENESIS.digest
    inode: int = 0
    """The file that the last record stands in, which keeps its inode when it is rotated."""
    offset: _Number = 0
    """The place behind the record."""
    event: str = ""
    """The fingerprint of the last event, to which the next one is chained."""
    log: str = ""
    """The name under which the log is sent, or empty if it is that of its file."""


class Shipment(Struct, frozen=True, kw_only=True):
    """Records that are sent together, and the note once they are taken."""

    lines: tuple[bytes, ...]
    after: Shipped


class Shipper(Struct, frozen=True, kw_only=True):
    """Sends the records of one machine to one destination."""

    machine: str
    style: Style
    to: Path | Callable[[bytes, str], None]
    """Where `records` are written; for another style, what sends bytes of a media type. That raises
    ShippingError if they were not taken."""

    def ship(self, log: Path, name: str = "") -> int:
        """Send what a log has that was not sent yet. Return the number of records.

        Args:
            log: the log.
            name: the name of a log that was never sent, or empty if it is that of its file.

        Raises:
            ShippingError: the destination does not take them, or the log is not the one it was.
            OSError: a file cannot be read or written.
        """
        note, count = self._note(log), 0
        busy = ShippingError("another `audit ship` is sending it")
        with held_lock(note.with_name(f"{note.name}.lock"), 0.0, busy):
            state = self.last(log)
            state = state if state.seq else replace(state, log=name)
            while batch := next_batch(log, state):
                state = self._send(log, batch, state)
                write_whole(note, encode(state), locked=True)
                count += len(batch.lines)
        return count

    def last(self, log: Path) -> Shipped:
        """Return the last record of a log that the destination took; 0 is the number of none.

        Raises:
            ShippingError: the note is damaged.
            OSError: it cannot be read.
        """
        return _read_note(self._note(log))

    def _note(self, log: Path) -> Path:
        style = "" if self.style == "records" else f"-{self.style}"
        return log.with_name(f"{log.name}.{_SUFFIX}{style}")

    def _send(self, log: Path, batch: Shipment, state: Shipped) -> Shipped:
        name = state.log or log.name
        if isinstance(self.to, Path):
            _append(self.to / f"{self.machine}.{name}.jsonl", batch.lines)
            return batch.after
        calls = [
            RecordedCall(fields, entry_of(fields))
            for fields in map(parsed, batch.lines)
            if fields is not None
        ]
        if self.style == "otlp":
            for body in as_otlp(calls, {"host.id": self.machine, "log.file.name": name}):
                self.to(body, "application/json")
            return batch.after
        chain = EventChain(f"{self.machine}:{name}", state.seq, state.event)
        self.to(b"".join(as_ocsf(calls, chain)), "application/x-ndjson")
        return replace(batch.after, event=chain.last)


def _read_note(path: Path) -> Shipped:
    try:
        return decode(read_regular(path), type=Shipped)
    except FileNotFoundError:
        return Shipped()
    except DecodeError as error:
        raise ShippingError(f"{path} is damaged: remove it to send all again") from error


def next_batch(log: Path, state: Shipped) -> Shipment | None:
    """Return the next records of a log, or None if all were sent.

    Raises:
        ShippingError: the record that was sent last is gone, or is another one now.
        OSError: a file cannot be read.
    """
    lines: list[bytes] = []
    size, after = 0, state
    for line, inode, offset in _lines_after(log, state):
        fields = parsed(line)
        seq = 0 if fields is None else placed_of(fields).seq or 0
        if seq <= 0:
            continue  # no record of ours
        # What was sent is known by its place: whoever adds a line with a high number must not keep
        # away all records that follow.
        lines.append(line)
        size += len(line)
        after = replace(state, seq=seq, digest=digest_of(line), inode=inode, offset=offset)
        if len(lines) >= _BATCH or size >= _BATCH_BYTES:
            break
    return Shipment(lines=tuple(lines), after=after) if lines else None


def _lines_after(log: Path, state: Shipped) -> Iterator[tuple[bytes, int, int]]:
    """Yield the complete lines behind the last one that was sent, each with its file and end."""
    is_found = state.seq == 0
    with suppress(FileNotFoundError):
        for name, file in files_of(log):
            inode = os.fstat(file.fileno()).st_ino
            if not is_found:
                if inode != state.inode:
                    continue
                is_found = True
                _check_place(log.with_name(name), file, state)
                file.seek(state.offset)
            yield from _complete(name, file, inode)
    if not is_found:
        # Copied or restored: looked for by its number, from the beginning.
        again = Shipped(seq=0)
        has_passed = False
        for line, inode, offset in _lines_after(log, again):
            if has_passed:
                yield line, inode, offset
            has_passed = has_passed or digest_of(line) == state.digest
        if not has_passed:
            raise ShippingError(
                f"{log} has no record {state.seq} as it was sent: it was cut off, edited or "
                "replaced; see `ironcurtain-proxy audit verify`"
            )


def _complete(name: str, file: BinaryIO, inode: int) -> Iterator[tuple[bytes, int, int]]:
    for line in lines_of(name, file):
        # One that is too long for a record keeps none away that follows.
        if line.raw is not None:
            yield line.raw, inode, file.tell()


def _check_place(path: Path, file: BinaryIO, state: Shipped) -> None:
    """Refuse a file whose last sent record is another one now."""
    start = max(0, state.offset - MAX_LINE - 1)
    file.seek(start)
    before = file.read(state.offset - start)
    last = before[:-1].rpartition(b"\n")[2]
    if not before.endswith(b"\n") or digest_of(last) != state.digest:
        raise ShippingError(
            f"{path} has another record {state.seq} than the one that was sent: it was edited or "
            "cut off; see `ironcurtain-proxy audit verify`"
        )


def _append(path: Path, lines: tuple[bytes, ...]) -> None:
    """Add lines to a file, but those that it has already, and put it onto the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Others write to the directory, too: no link leads to another file of ours.
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - MAX_LINE - 1)
        file.seek(start)
        tail = file.read()
        whole = tail.rfind(b"\n") + 1
        # What a kill or a full disk left of a line.
        file.truncate(start + whole)
        last = tail[: max(0, whole - 1)].rpartition(b"\n")[2]
        new = lines[lines.index(last) + 1 :] if last in lines else lines
        try:
            file.write(b"".join([line + b"\n" for line in new]))
            file.flush()
        finally:
            os.fsync(file.fileno())
