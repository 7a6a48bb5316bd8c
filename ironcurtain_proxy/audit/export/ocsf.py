"""Calls as events of the Open Cybersecurity Schema Framework, version 1.6.0, a JSON line each.

A tool call is an event of class API Activity (6003) with the profile Security Control, which says
whether the event was let through and by which policy.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import orjson

from ironcurtain_proxy.audit.calls import RecordedCall
from ironcurtain_proxy.audit.display import arrived_at
from ironcurtain_proxy.audit.selection import REFUSALS
from ironcurtain_proxy.version import VERSION

_VERSION: Final = "1.6.0"
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
    {"timestamp", "requestId", "serverName", "toolName", "arguments", "durationMs", "prev"}
)
"""Fields of a record that stand in attributes of the schema, or mean nothing outside the log."""


def as_ocsf(calls: Iterable[RecordedCall]) -> Iterator[bytes]:
    """The calls as JSON lines."""
    for call in calls:
        yield orjson.dumps(_event(call), option=orjson.OPT_APPEND_NEWLINE)


def _event(call: RecordedCall) -> dict[str, object]:
    fields, entry = call
    refused = entry.decision in REFUSALS
    server, _, tool = entry.tool.partition("/")
    status = {"success": _SUCCESS, "error": _FAILURE, "denied": _FAILURE}.get(entry.status)
    return {
        "metadata": {
            "version": _VERSION,
            "profiles": ["security_control"],
            "product": {
                "name": "ironcurtain-proxy",
                "vendor_name": "IronCurtain Proxy",
                "version": VERSION,
            },
            "uid": entry.request_id or entry.number,
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
        "policy": {"name": entry.rule, "version": _text(fields, "policyVersion")},
        "unmapped": {name: value for name, value in fields.items() if name not in _MAPPED},
    }


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
