"""Calls in the formats of other programs: CSV, the Open Cybersecurity Schema Framework, OTLP."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.audit.calls import RecordedCall
from ironcurtain_proxy.audit.display import REFUSALS, LogEntry, arrived_at, printable
from ironcurtain_proxy.model.decision import Grants, of_record
from ironcurtain_proxy.model.reply import method_and_target
from ironcurtain_proxy.model.values import word_list
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
    """The fingerprint of the last event; empty: there is none."""

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
        "policy": {"name": entry.rule or "none", "version": _text(fields, "policyVersion")},
        "ai_agent": {"name": entry.client or "unknown", "instance_uid": entry.session},
        **_delegation(fields),
        "unmapped": {name: value for name, value in fields.items() if name not in _MAPPED},
    }


def _delegation(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the approval that was remembered and that settled the call, where one did."""
    who = of_record(_text(fields, "decidedBy"))
    if not isinstance(who, Grants) or not who.ids:
        return {}
    return {"delegation": {"uid": who.ids[0], "issuer_uid": "ironcurtain-proxy"}}


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


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
        "ironcurtain.prev": _text(fields, "prev"),
        "ironcurtain.phase": _text(fields, "phase"),
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
