"""Calls as log records of OpenTelemetry in the JSON encoding of OTLP.

A line is one `ExportLogsServiceRequest`, as the file exporter of the OpenTelemetry Collector writes
it and as its OTLP/HTTP receiver takes it at `/v1/logs`.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import orjson

from ironcurtain_proxy.audit.calls import RecordedCall
from ironcurtain_proxy.audit.display import LogEntry, arrived_at
from ironcurtain_proxy.audit.selection import REFUSALS
from ironcurtain_proxy.model.conventions import method_and_target
from ironcurtain_proxy.version import VERSION

_BATCH: Final = 500
"""Records in a line: a collector refuses requests above 20 MiB."""
_INFO: Final = 9
_WARN: Final = 13


def as_otlp(calls: Iterable[RecordedCall]) -> Iterator[bytes]:
    """The calls as JSON lines of up to 500 log records."""
    rest = iter(calls)
    while batch := list(islice(rest, _BATCH)):
        yield orjson.dumps(_request(batch), option=orjson.OPT_APPEND_NEWLINE)


def _request(batch: Iterable[RecordedCall]) -> dict[str, object]:
    resource = {"service.name": "ironcurtain-proxy", "service.version": VERSION}
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
