"""The lines of the log: records as JSON objects, bounded, and chained by hashes.

The original's keys come first, in its order, so that programs that read its logs read ours. Our
own keys follow. `chain` adds the position.

Every line ends in `"seq"`, its number, and `"prev"`, the SHA-256 of the line before it: of all its
bytes but the newline. Whoever edits, removes, inserts or reorders lines must forge all that follow,
and then the head file and every anchor kept elsewhere disagree.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, TypeAlias

import orjson
from msgspec import Struct

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
from ironcurtain_proxy.model.decision import KERNEL, in_record
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.reply import AuditRecord, OwnField, RecordedDoor, ResultSummary
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, list_of, words

# --- denied calls ---------------------------------------------------------------------------------
# The limit on denied calls that get a record each.
#
# An agent can cause any number of denied calls, which could fill the disk; and on a full disk
# the proxy forwards nothing. Denied calls share a budget of bytes, which refills with time.
# While the budget is empty, denied calls are counted by server, tool and reason, and one record
# holds the counts. Decisions of persons and reviewers always have a record each.


BURST_BYTES: Final = 4 << 20
BYTES_PER_SECOND: Final = 16 << 10
SECONDS: Final = 1.0
"""Between two lines of counts."""

_MOST_KINDS: Final = 16
_NAME: Final = 100
"""Characters of a tool's name: it is the agent's."""

DenialKind: TypeAlias = tuple[str, str, str, str]
"""Server, tool, rule, and the party that refused."""


def is_unasked(denied: AuditRecord) -> bool:
    """Return whether the proxy refused a denied call by itself, without a question."""
    return denied.decided_by == KERNEL and all(name != "waitedMs" for name, _ in denied.context)


class Denials:
    """The budget of one log, and its unwritten counts. Times are monotonic."""

    def __init__(self) -> None:
        self._left = float(BURST_BYTES)
        self._looked_at: float | None = None
        self._written_at: float | None = None
        self._counts: Counter[DenialKind] = Counter()
        self._first: AuditRecord | None = None
        self._last: AuditRecord | None = None

    def is_spent(self, now: float) -> bool:
        """Return whether the next denied call is counted instead of recorded."""
        since = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at)
        self._looked_at = now
        self._left = min(float(BURST_BYTES), self._left + since * BYTES_PER_SECOND)
        return self._left <= 0

    def charge(self, size: int) -> None:
        """Subtract the bytes of a recorded denied call from the budget."""
        self._left -= size

    def count(self, record: AuditRecord) -> None:
        """Count a denied call instead of recording it."""
        if self._first is None:
            self._first = record
        self._last = record
        by = next((str(value) for name, value in record.context if name == "refusedBy"), "")
        kind = (record.server[:_NAME], record.tool[:_NAME], record.rule[:_NAME], by)
        if kind not in self._counts and len(self._counts) >= _MOST_KINDS:
            kind = ("", "", "", "")
        self._counts[kind] += 1

    @property
    def is_waiting(self) -> bool:
        """Whether there are unwritten counts."""
        return self._first is not None

    def is_due(self, now: float) -> bool:
        """Return whether the counts must be written now: the first at once, then once a second."""
        late = self._written_at is None or now - self._written_at >= SECONDS
        return self.is_waiting and late

    def take(self, now: float) -> "Counted | None":
        """Return the counts since the last time, or None if there are none."""
        first, last = self._first, self._last
        if first is None or last is None:
            return None
        found = Counted(first, last.timestamp, self._counts)
        self._first = self._last = None
        self._counts = Counter()
        self._written_at = now
        return found


class Counted:
    """Counted denied calls, for one record."""

    __slots__ = ("first", "kinds", "until")

    def __init__(self, first: AuditRecord, until: datetime, kinds: Counter[DenialKind]) -> None:
        self.first = first
        """The first call: it gives the session and the start time."""
        self.until = until
        """The time of the last call."""
        self.kinds = kinds

    @property
    def total(self) -> int:
        """The number of counted calls."""
        return self.kinds.total()


ORIGINAL_FLAGS: Final = ("autoApproved", "whitelistApproved", "whitelistPatternId", "persona")
"""Fields of `context` that the original has, in its order; left out when false or empty."""

_TAKEN: Final = words(
    """
    timestamp requestId serverName toolName arguments policyDecision escalationResult result
    durationMs sandboxed phase session client decidedBy origins policyVersion argumentsDigest seq
    prev
    """
)

_KEPT_CALLS: Final = 64
_KEPT_BYTES: Final = 32 * 1024
_CLEAN_TEXTS: Final = 2048
_CLEAN_LENGTH: Final = 512
_PARTS: Final = 1024
_PART_LENGTH: Final = 1024


class _Head(Struct, frozen=True):
    """The beginning of a record, up to the decision. The records of one call share it."""

    record: AuditRecord
    arguments: Shaped
    written: bytes

    def fits(self, record: AuditRecord) -> bool:
        """Return whether a later record of the call begins with the same bytes."""
        mine = self.record
        return (
            mine.arguments is record.arguments
            and mine.timestamp is record.timestamp
            and mine.server == record.server
            and mine.tool == record.tool
            and mine.effect == record.effect
            and mine.rule == record.rule
            and mine.reason == record.reason
        )


class RecordEncoder:
    """Turns records into JSON.

    A record is joined from parts, and most parts are the same from call to call. The encoder keeps
    the beginning of calls under way, the JSON of tools, decisions and sessions, and short texts
    that needed no change: what comes again costs a look-up.
    """

    __slots__ = ("_clean", "_door", "_heads", "_parts", "_redaction")

    def __init__(self, *, redaction: bool, door: RecordedDoor = "mcp") -> None:
        self._redaction = redaction
        self._door = door
        self._heads: dict[RequestId, _Head] = {}
        self._parts: dict[tuple[object, ...], bytes] = {}
        self._clean: set[str] = set()

    def encode(self, record: AuditRecord) -> bytes:
        """Return the record as compact JSON. No input of an agent or a server makes it raise."""
        result = record.result
        limits = SHORT if result is not None and result.status == "denied" else WHOLE
        head = self._head(record, limits)
        if result is None and not record.context and record.escalation_result is None:
            rest = self._rest_of_intent(record)
        elif result is not None and result.status == "success" and _is_plain(record, result):
            rest = self._rest_of_success(record, result)
        else:
            rest = b"%b,%b" % (self._outcome(record, limits), self._origin(record))
        if head.arguments.size is not None:
            digest = {"size": head.arguments.size, "sha256": head.arguments.sha256}
            rest = b"%b,%b" % (rest, _members({"argumentsDigest": digest}))
        return b",".join((head.written, rest)) + b"}"

    def encode_counted(self, counted: Counted) -> bytes:
        """Encode counted denied calls as one record."""
        first = counted.first
        reason = f"{counted.total} denied calls came too fast to be recorded one by one"
        of = [
            {"serverName": server, "toolName": tool, "rule": rule, "refusedBy": by, "count": count}
            for (server, tool, rule, by), count in counted.kinds.most_common()
        ]
        fields: dict[str, object] = {
            "timestamp": _timestamp(first.timestamp).decode(),
            "requestId": "",
            "serverName": "",
            "toolName": "",
            "arguments": {},
            "policyDecision": {"status": "deny", "rule": "counted", "reason": reason},
            "result": {"status": "denied"},
            "durationMs": 0,
            "phase": "counted",
            "session": first.session,
            "client": self._text(first.client, SHORT),
            "decidedBy": in_record(first.decided_by),
            "count": counted.total,
            "until": _timestamp(counted.until).decode(),
            "of": shape_value(of, redaction=self._redaction),
        }
        return orjson.dumps(fields)

    def _head(self, record: AuditRecord, limits: RecordLimits) -> _Head:
        if record.result is None:
            shaped = shape_arguments(record.arguments, redaction=self._redaction)
            head = _Head(record, shaped, self._beginning(record, shaped, limits))
            if len(shaped.raw) <= _KEPT_BYTES:
                if len(self._heads) >= _KEPT_CALLS:
                    del self._heads[next(iter(self._heads))]
                self._heads[record.request_id] = head
            return head
        kept = self._heads.pop(record.request_id, None)
        if kept is not None and limits is WHOLE and kept.fits(record):
            return kept
        if kept is not None and kept.record.arguments is record.arguments:
            shaped = kept.arguments
        else:
            shaped = shape_arguments(record.arguments, redaction=self._redaction, limits=limits)
        return _Head(record, shaped, self._beginning(record, shaped, limits))

    def _beginning(self, record: AuditRecord, arguments: Shaped, limits: RecordLimits) -> bytes:
        names = ("names", record.server, record.tool, limits.value)
        decision = ("decision", record.effect, record.rule, record.reason, limits.value)
        # Joined, which takes a quarter of the time of `%`.
        members = [
            b'{"timestamp":"%b"' % _timestamp(record.timestamp),
            b'"requestId":' + orjson.dumps(record.request_id),
            self._parts.get(names) or self._keep(names, self._names(record, limits)),
            b'"arguments":' + arguments.raw,
            self._parts.get(decision) or self._keep(decision, self._decision(record, limits)),
        ]
        return b",".join(members)

    def _names(self, record: AuditRecord, limits: RecordLimits) -> dict[str, object]:
        return {
            "serverName": self._text(record.server, limits),
            "toolName": self._text(record.tool, limits),
        }

    def _decision(self, record: AuditRecord, limits: RecordLimits) -> dict[str, object]:
        decision = {
            "status": record.effect,
            "rule": self._text(record.rule, limits),
            "reason": self._text(record.reason, limits),
        }
        return {"policyDecision": decision}

    def _rest_of_intent(self, record: AuditRecord) -> bytes:
        """Return the end of an intent without a question: the same for nearly all calls."""
        by, version, took = in_record(record.decided_by), record.policy_version, record.duration_ms
        key = (record.session, record.client, by, record.origins, version, record.sandboxed, took)
        return self._parts.get(key) or self._keep_bytes(
            key, b"%b,%b" % (self._outcome(record, WHOLE), self._origin(record))
        )

    def _rest_of_success(self, record: AuditRecord, result: ResultSummary) -> bytes:
        """Return the end of an outcome as nearly every call has it: all but three values repeat."""
        by, version = in_record(record.decided_by), record.policy_version
        key = ("", record.session, record.client, by, record.origins, version, record.sandboxed)
        tail = self._parts.get(key) or self._keep_bytes(key, self._after_duration(record))
        return b'"result":{"status":"success","size":%d,"sha256":"%b"},"durationMs":%d%b' % (
            result.size or 0,
            (result.sha256 or "").encode(),
            record.duration_ms,
            tail,
        )

    def _after_duration(self, record: AuditRecord) -> bytes:
        if record.sandboxed is None:
            return b",%b" % self._origin(record)
        return b',"sandboxed":%b,%b' % (
            b"true" if record.sandboxed else b"false",
            self._origin(record),
        )

    def _outcome(self, record: AuditRecord, limits: RecordLimits) -> bytes:
        fields: dict[str, object] = {}
        if record.escalation_result is not None:
            fields["escalationResult"] = record.escalation_result
        if record.result is not None:
            fields["result"] = self._result(record.result, limits)
        fields["durationMs"] = record.duration_ms
        if record.sandboxed is not None:
            fields["sandboxed"] = record.sandboxed
        if record.context:
            self._add_context(fields, record)
        return _members(fields)

    def _origin(self, record: AuditRecord) -> bytes:
        phase = "intent" if record.result is None else "outcome"
        session, by, version = record.session, in_record(record.decided_by), record.policy_version
        # One log may have the calls of two doors.
        door = next((value for name, value in record.context if name == "door"), self._door)
        key = (phase, session, record.client, by, record.origins, version, door)
        # The client chose its own name, which may be anything.
        return self._parts.get(key) or self._keep(
            key, {**_origin(record, self._text(record.client, SHORT)), "door": door}
        )

    def _keep(self, key: tuple[object, ...], fields: dict[str, object]) -> bytes:
        return self._keep_bytes(key, _members(fields))

    def _keep_bytes(self, key: tuple[object, ...], written: bytes) -> bytes:
        if len(written) <= _PART_LENGTH:
            if len(self._parts) >= _PARTS:
                self._parts.clear()
            self._parts[key] = written
        return written

    def _result(self, result: ResultSummary, limits: RecordLimits) -> dict[str, object]:
        error = None if result.error is None else self._text(result.error, limits)
        fields: dict[str, object] = {"status": result.status, "error": error}
        fields |= {"size": result.size, "sha256": result.sha256}
        return {name: value for name, value in fields.items() if value is not None}

    def _add_context(self, fields: dict[str, object], record: AuditRecord) -> None:
        """Add fields of later stages. None may replace a field of ours."""
        context = {field[0]: field for field in record.context if field[0] != "door"}
        for name in ORIGINAL_FLAGS:
            field = context.pop(name, None)
            if name == "autoApproved" and record.escalation_result != "approved":
                continue
            if field is not None and field[1]:
                fields[name] = self._value(field)
        for name, field in context.items():
            fields[f"context.{name}" if name in _TAKEN else name] = self._value(field)

    def _value(self, field: tuple[str, Json]) -> object:
        # Fields that the proxy wrote need neither bounds nor redaction.
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


def _is_plain(record: AuditRecord, result: ResultSummary) -> bool:
    """Return whether a success has its size and digest, and no field that only some calls have."""
    return not (
        record.context
        or record.escalation_result is not None
        or result.error is not None
        or result.size is None
        or result.sha256 is None
    )


def _origin(record: AuditRecord, client: str) -> dict[str, object]:
    """Return our own fields: the client and session of the call, and who decided."""
    fields: dict[str, object] = {"phase": "intent"} if record.result is None else {}
    fields["session"] = record.session
    if client:
        fields["client"] = client
    fields["decidedBy"] = in_record(record.decided_by)
    if record.origins:
        fields["origins"] = record.origins
    if record.policy_version:
        fields["policyVersion"] = record.policy_version
    return fields


def _members(fields: Mapping[str, object]) -> bytes:
    """Return an object as JSON, without its braces."""
    try:
        return orjson.dumps(fields)[1:-1]
    except TypeError:
        # orjson refuses a lone surrogate in a field of ours.
        return orjson.dumps(shape_fields(fields))[1:-1]


def _timestamp(moment: datetime) -> bytes:
    """Return the time as JavaScript writes it (RFC 3339): `2026-11-21T20:30:50.799Z`."""
    moment = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    # orjson writes the seconds: `isoformat` takes twice as long.
    return b"%b.%03dZ" % (orjson.dumps(moment)[1:20], moment.microsecond // 1000)


def summarize(result: ToolResult) -> ResultSummary:
    """Return the summary of a server's answer: status, size and digest, without content.

    The text of an error is kept, as in the original: it says why a call failed.
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
        sha256=None if raw is None else result.digest or sha256(raw).hexdigest(),
    )


def _message_of(error: Mapping[str, Json]) -> str:
    message = error.get("message")
    return message if isinstance(message, str) and message else _UNKNOWN_ERROR


def _error_text(answer: Mapping[str, Json]) -> str:
    blocks = list_of(answer.get("content"))
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return "\n".join([text for text in texts if isinstance(text, str)]) or _UNKNOWN_ERROR


_UNKNOWN_ERROR: Final = "Unknown tool error"


# --- chain


class Link(Struct, frozen=True):
    """The position of one line in the chain."""

    seq: int
    """1 for the first line ever; goes on over rotated files."""
    digest: str
    """SHA-256 of the line without its newline, hexadecimal, lower case."""


GENESIS: Final = Link(0, "0" * 64)
"""The link before the first line."""


def digest_of(line: bytes) -> str:
    """Return the digest that the next line names.

    Args:
        line: without its newline.
    """
    return sha256(line).hexdigest()


def seal(bodies: Sequence[bytes], after: Link) -> tuple[bytes, Link]:
    """Add the positions in the chain to records that follow each other.

    Args:
        bodies: each a record as a compact JSON object, not empty, without `seq` and `prev`.
        after: the line before the first of them.

    Returns:
        The lines, each with its newline, and the place of the last of them.
    """
    seq, digest = after.seq, after.digest
    lines: list[bytes] = []
    for body in bodies:
        seq += 1
        line = b'%b,"seq":%d,"prev":"%b"}\n' % (body[:-1], seq, digest.encode())
        digest = sha256(line[:-1]).hexdigest()
        lines.append(line)
    return b"".join(lines), Link(seq, digest)
