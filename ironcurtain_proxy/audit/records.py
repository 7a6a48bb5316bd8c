"""A record as the JSON object that is written.

The original's keys in the original's order, so that what reads its logs reads ours; then our own.
Which place in the chain the object gets is not known here.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import orjson

from ironcurtain_proxy.audit.bounding import (
    SHORT,
    WHOLE,
    RecordLimits,
    Shaped,
    compact_json,
    shape_arguments,
    shape_fields,
    shape_text,
    shape_value,
)
from ironcurtain_proxy.audit.denials import Counted
from ironcurtain_proxy.model.audit import AuditRecord, OwnField, ResultSummary
from ironcurtain_proxy.model.call import RequestId
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ToolResult

ORIGINAL_FLAGS: Final = ("autoApproved", "whitelistApproved", "whitelistPatternId", "persona")
"""Fields of `context` that the original has, in its order; left out when false or empty."""

_TAKEN: Final = frozenset(
    {
        "timestamp",
        "requestId",
        "serverName",
        "toolName",
        "arguments",
        "policyDecision",
        "escalationResult",
        "result",
        "durationMs",
        "sandboxed",
        "phase",
        "session",
        "client",
        "decidedBy",
        "origins",
        "policyVersion",
        "argumentsDigest",
        "seq",
        "prev",
    }
)

_KEPT_CALLS: Final = 64
_KEPT_BYTES: Final = 32 * 1024
_CLEAN_TEXTS: Final = 2048
_CLEAN_LENGTH: Final = 512


class RecordEncoder:
    """Turns records into JSON.

    Remembers the arguments of calls under way as they were written in the intent, and short texts
    that needed no change (names of tools and rules, reasons): what comes again costs a look-up.
    """

    __slots__ = ("_clean", "_kept", "_redaction")

    def __init__(self, *, redaction: bool) -> None:
        self._redaction = redaction
        self._kept: dict[RequestId, tuple[object, Shaped]] = {}
        self._clean: set[str] = set()

    def encode(self, record: AuditRecord) -> bytes:
        """The record as compact JSON. Never raises for what agents and servers can send."""
        denied = record.result is not None and record.result.status == "denied"
        limits = SHORT if denied else WHOLE
        arguments = self._arguments(record, limits)
        fields = self._fields(record, arguments, limits)
        try:
            return orjson.dumps(fields)
        except TypeError:
            # A lone surrogate in a field of ours: nothing to be gained by being clever.
            written = shape_fields({**fields, "arguments": None})
            written["arguments"] = orjson.Fragment(arguments.raw)
            return orjson.dumps(written)

    def encode_counted(self, counted: Counted) -> bytes:
        """Denied calls that were counted, in the shape of a record of one."""
        first = counted.first
        reason = f"{counted.total} denied calls came too fast to be recorded one by one"
        of = [
            {"serverName": server, "toolName": tool, "rule": rule, "refusedBy": by, "count": count}
            for (server, tool, rule, by), count in counted.kinds.most_common()
        ]
        fields: dict[str, object] = {
            "timestamp": _timestamp(first.timestamp),
            "requestId": "",
            "serverName": "",
            "toolName": "",
            "arguments": {},
            "policyDecision": {"status": "deny", "rule": "counted", "reason": reason},
            "result": {"status": "denied"},
            "durationMs": 0,
            "phase": "counted",
            "session": first.session,
            "client": first.client,
            "decidedBy": first.decided_by,
            "count": counted.total,
            "until": _timestamp(counted.until),
            "of": shape_value(of, redaction=self._redaction),
        }
        return orjson.dumps(fields)

    def _arguments(self, record: AuditRecord, limits: RecordLimits) -> Shaped:
        if record.result is not None:
            kept = self._kept.pop(record.request_id, None)
            if kept is not None and kept[0] is record.arguments:
                return kept[1]
            return shape_arguments(record.arguments, redaction=self._redaction, limits=limits)
        shaped = shape_arguments(record.arguments, redaction=self._redaction)
        if len(shaped.raw) <= _KEPT_BYTES:
            if len(self._kept) >= _KEPT_CALLS:
                del self._kept[next(iter(self._kept))]
            self._kept[record.request_id] = (record.arguments, shaped)
        return shaped

    def _fields(
        self, record: AuditRecord, arguments: Shaped, limits: RecordLimits
    ) -> dict[str, object]:
        fields: dict[str, object] = {
            "timestamp": _timestamp(record.timestamp),
            "requestId": record.request_id,
            "serverName": self._text(record.server, limits),
            "toolName": self._text(record.tool, limits),
            "arguments": orjson.Fragment(arguments.raw),
            "policyDecision": {
                "status": record.effect,
                "rule": self._text(record.rule, limits),
                "reason": self._text(record.reason, limits),
            },
        }
        if record.escalation_result is not None:
            fields["escalationResult"] = record.escalation_result
        if record.result is not None:
            fields["result"] = self._result(record.result, limits)
        fields["durationMs"] = record.duration_ms
        if record.sandboxed is not None:
            fields["sandboxed"] = record.sandboxed
        if record.context:
            self._add_context(fields, record)
        _add_ours(fields, record, arguments)
        return fields

    def _result(self, result: ResultSummary, limits: RecordLimits) -> dict[str, object]:
        fields: dict[str, object] = {"status": result.status}
        if result.error is not None:
            fields["error"] = self._text(result.error, limits)
        if result.size is not None:
            fields["size"] = result.size
        if result.sha256 is not None:
            fields["sha256"] = result.sha256
        return fields

    def _add_context(self, fields: dict[str, object], record: AuditRecord) -> None:
        """Fields of later stages. None may stand in for one of ours, or a reader is misled."""
        context = {field[0]: field for field in record.context}
        for name in ORIGINAL_FLAGS:
            field = context.pop(name, None)
            if name == "autoApproved" and record.escalation_result != "approved":
                continue
            if field is not None and field[1]:
                fields[name] = self._value(field)
        for name, field in context.items():
            fields[f"context.{name}" if name in _TAKEN else name] = self._value(field)

    def _value(self, field: tuple[str, Json]) -> object:
        # What we wrote ourselves needs neither bounds nor a search for secrets.
        if isinstance(field, OwnField):
            return field.value
        return shape_value(field[1], redaction=self._redaction)

    def _text(self, text: str, limits: RecordLimits) -> str:
        if text in self._clean:
            return text
        shaped = shape_text(text, redaction=self._redaction, limits=limits)
        if shaped == text and len(text) <= _CLEAN_LENGTH:
            if len(self._clean) >= _CLEAN_TEXTS:
                self._clean.clear()
            self._clean.add(text)
        return shaped


def _add_ours(fields: dict[str, object], record: AuditRecord, arguments: Shaped) -> None:
    if record.result is None:
        fields["phase"] = "intent"
    fields["session"] = record.session
    if record.client:
        fields["client"] = record.client
    fields["decidedBy"] = record.decided_by
    if record.origins:
        fields["origins"] = record.origins
    if record.policy_version:
        fields["policyVersion"] = record.policy_version
    if arguments.size is not None:
        fields["argumentsDigest"] = {"size": arguments.size, "sha256": arguments.sha256}


def _timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as JavaScript writes it: `2026-11-21T20:30:50.799Z`."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


def summarize(result: ToolResult) -> ResultSummary:
    """What is recorded of a server's answer: how it ended, its size and its digest, no content.

    The text of an error is kept, as the original does: it says why a call came to nothing.
    """
    body: Mapping[str, Json] = result.result or {}
    error: str | None = None
    if result.error is not None:
        body = result.error
        error = _message_of(body)
    elif body.get("isError") is True:
        error = _error_text(body)
    raw = result.written or compact_json(body)
    return ResultSummary(
        status="success" if error is None else "error",
        error=error,
        size=None if raw is None else len(raw),
        sha256=None if raw is None else sha256(raw).hexdigest(),
    )


def _message_of(error: Mapping[str, Json]) -> str:
    message = error.get("message")
    return message if isinstance(message, str) and message else _UNKNOWN_ERROR


def _error_text(answer: Mapping[str, Json]) -> str:
    content = answer.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return "\n".join([text for text in texts if isinstance(text, str)]) or _UNKNOWN_ERROR


_UNKNOWN_ERROR: Final = "Unknown tool error"
