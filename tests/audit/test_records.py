"""What a line looks like: the original's fields in the original's order, then ours."""

from collections import UserDict
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.audit.files import MAX_LINE
from ironcurtain_proxy.audit.records import GENESIS, RecordEncoder, digest_of, seal, summarize
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from tests.audit.specimens import intent, record


def encoded(one: AuditRecord, *, redaction: bool = True) -> dict[str, Json]:
    """A record as it is read back."""
    raw = RecordEncoder(redaction=redaction).encode(one)
    assert b"\n" not in raw
    fields: dict[str, Json] = orjson.loads(raw)
    return fields


@pytest.mark.requirement("C-36", "A-21", "A-33")
def test_an_outcome_has_the_originals_keys_in_its_order_and_then_ours() -> None:
    """G20."""
    one = record(
        1,
        {
            "effect": "escalate",
            "escalation_result": "approved",
            "sandboxed": True,
            "context": (("risk", 0.2), ("autoApproved", True), ("whitelistApproved", False)),
            "origins": ("policy",),
            "policy_version": "cd" * 32,
        },
    )
    assert list(encoded(one)) == [
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
        "autoApproved",
        "risk",
        "session",
        "decidedBy",
        "origins",
        "policyVersion",
        "door",
    ]
    assert encoded(one)["policyDecision"] == {
        "status": "escalate",
        "rule": "read-srv",
        "reason": "Reading below /srv is allowed",
    }
    assert encoded(one)["result"] == {"status": "success", "size": 12, "sha256": "ab" * 32}
    assert encoded(one)["timestamp"] == "2026-11-21T12:00:00.799Z"


@pytest.mark.parametrize("sandboxed", [None, True, False])
@pytest.mark.parametrize("size", [0, 17])
def test_a_plain_success_is_written_as_one_with_a_further_field(
    sandboxed: bool | None, size: int
) -> None:
    end = ResultSummary(status="success", size=size, sha256="ef" * 32)
    fields: dict[str, object] = {"result": end, "sandboxed": sandboxed, "client": 'a "client"'}
    plain, further = record(1, fields), record(1, {**fields, "context": (("more", 1),)})
    encoder = RecordEncoder(redaction=True)
    twice = [encoder.encode(plain), encoder.encode(plain)]
    written = encoder.encode(further)
    assert b',"more":1,' in written
    assert twice == [written.replace(b'"more":1,', b"")] * 2


def test_an_intent_says_so_and_has_no_result() -> None:
    fields = encoded(intent())
    assert fields["phase"] == "intent"
    assert "result" not in fields
    assert "phase" not in encoded(record())


def test_what_is_absent_or_false_is_left_out() -> None:
    fields = encoded(record(1, {"context": (("autoApproved", False),)}))
    assert not {"sandboxed", "autoApproved", "escalationResult", "origins", "policyVersion"} & set(
        fields
    )


@pytest.mark.requirement("C-36", "C-15")
@pytest.mark.parametrize("sandboxed", [True, False])
def test_that_a_server_was_not_confined_is_said_as_well_as_that_it_was(sandboxed: bool) -> None:
    assert encoded(record(1, {"sandboxed": sandboxed}))["sandboxed"] is sandboxed
    assert encoded(intent(1, {"sandboxed": sandboxed}))["sandboxed"] is sandboxed


@pytest.mark.requirement("A-33")
def test_only_an_approved_escalation_is_ever_auto_approved() -> None:
    one = record(
        1,
        {"effect": "escalate", "escalation_result": "denied", "context": (("autoApproved", True),)},
    )
    assert "autoApproved" not in encoded(one)


def test_a_field_of_a_later_stage_never_stands_in_for_one_of_ours() -> None:
    one = record(
        1, {"context": (("seq", 7), ("prev", "00"), ("arguments", {}), ("timestamp", "never"))}
    )
    fields = encoded(one)
    assert fields["arguments"] == {"path": "/srv/1.txt"}
    assert fields["context.seq"] == 7
    assert "seq" not in fields


@pytest.mark.parametrize("micro", [0, 999, 1000, 50_000, 999_999])
def test_a_time_has_its_milliseconds_cut_and_always_three_digits(micro: int) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, micro, tzinfo=UTC)
    said = moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    assert encoded(record(1, {"timestamp": moment}))["timestamp"] == said


def test_a_time_in_another_zone_is_written_in_utc() -> None:
    zone = timezone(timedelta(hours=2))
    fields = encoded(record(1, {"timestamp": datetime(2026, 11, 21, 14, 0, tzinfo=zone)}))
    assert fields["timestamp"] == "2026-11-21T12:00:00.000Z"


@pytest.mark.requirement("C-37", "C-38", "C-40")
@pytest.mark.parametrize(
    "place",
    [
        {"arguments": {"a": "AKIAIOSFODNN7EXAMPLE"}},
        {"reason": "it names AKIAIOSFODNN7EXAMPLE"},
        {"tool": "AKIAIOSFODNN7EXAMPLE"},
        {"rule": "AKIAIOSFODNN7EXAMPLE"},
        {"result": ResultSummary(status="error", error="AKIAIOSFODNN7EXAMPLE")},
        {"context": (("persona", "AKIAIOSFODNN7EXAMPLE"), ("more", ["AKIAIOSFODNN7EXAMPLE"]))},
        {"client": "AKIAIOSFODNN7EXAMPLE 1.0"},
    ],
    ids=["arguments", "reason", "tool", "rule", "error", "context", "client"],
)
def test_redaction_reaches_every_field_that_others_write(place: dict[str, object]) -> None:
    """G19."""
    assert "IOSFODNN7EXA" not in str(encoded(record(1, place)))
    assert "IOSFODNN7EXA" in str(encoded(record(1, place), redaction=False))


def test_the_outcome_shows_the_arguments_as_the_intent_did() -> None:
    encoder = RecordEncoder(redaction=True)
    arguments: dict[str, Json] = {"token": "hunter2", "text": "x" * 9000}
    first = orjson.loads(encoder.encode(intent(1, {"arguments": arguments})))
    second = orjson.loads(encoder.encode(record(1, {"arguments": arguments})))
    assert first["arguments"] == second["arguments"]
    other = orjson.loads(encoder.encode(record(1, {"arguments": {"path": "other"}})))
    assert other["arguments"] == {"path": "other"}


# --- hostile values ------------------------------------------------------------------------------


def nested(depth: int) -> Json:
    value: Json = "bottom"
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: Final[dict[str, Json]] = {
    "an integer beyond 64 bits": 2**70,
    "an integer of ten thousand digits": 10**10_000,
    "half a surrogate pair": "\ud800 and \udfff",
    "a key with half a surrogate pair": {"\udc00": 1},
    "not a number": float("nan"),
    "deep nesting": nested(900),
    "deep nesting of objects": {"a": nested(300)},
    "many keys": {str(n): n for n in range(100_000)},
    "many items": list(range(100_000)),
    "many texts": ["y" * 1000] * 2000,
    "control characters": "\x00\x1f" * 30_000,
    "newlines": "\n\r\u2028" * 100,
    "a huge text": "é" * 1_000_000,
    "many huge texts": ["z" * 20_000] * 50,
    "a huge key": {"k" * 1_000_000: 1},
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("redaction", [True, False], ids=["redacted", "plain"])
def test_whatever_the_arguments_are_a_bounded_line_is_written(name: str, redaction: bool) -> None:
    encoder = RecordEncoder(redaction=redaction)
    raw = encoder.encode(record(1, {"arguments": {"value": HOSTILE[name], "after": "kept"}}))
    assert len(raw) < MAX_LINE
    assert b"\n" not in raw
    assert orjson.loads(raw)["serverName"] == "filesystem"


def test_hostile_words_of_a_server_are_bounded_too() -> None:
    one = record(
        1,
        {
            "reason": "\ud800" * 50_000,
            "tool": "t" * 1_000_000,
            "result": ResultSummary(status="error", error="\x00" * 1_000_000),
            "session": "\udfff",
        },
    )
    raw = RecordEncoder(redaction=True).encode(one)
    assert len(raw) < MAX_LINE
    assert orjson.loads(raw)["session"] == "\\udfff"


def test_an_integer_beyond_64_bits_keeps_its_digits() -> None:
    raw = RecordEncoder(redaction=True).encode(record(1, {"arguments": {"n": -(2**70)}}))
    assert b'{"n":-1180591620717411303424}' in raw


def test_a_long_value_is_cut_and_its_digest_given() -> None:
    text = "ab€" * 10_000
    shown = encoded(record(1, {"arguments": {"text": text, "n": 1}}))["arguments"]
    assert isinstance(shown, dict)
    whole = text.encode()
    assert shown["n"] == 1
    assert str(shown["text"]).startswith("ab€ab€")
    assert str(shown["text"]).endswith(
        f"…[cut {len(whole) - 8192} bytes, sha256 {sha256(whole).hexdigest()}]"
    )


def test_a_value_of_exactly_8_kib_is_kept_whole() -> None:
    text = "a" * 8192
    assert encoded(record(1, {"arguments": {"text": text}}))["arguments"] == {"text": text}


def test_when_the_structure_is_cut_the_whole_is_digested() -> None:
    arguments: dict[str, Json] = {"items": list(range(50_000))}
    whole = orjson.dumps(arguments)
    fields = encoded(record(1, {"arguments": arguments}))
    assert fields["argumentsDigest"] == {"size": len(whole), "sha256": sha256(whole).hexdigest()}


def test_arguments_of_another_mapping_type_are_written() -> None:
    fields = encoded(record(1, {"arguments": UserDict({"path": "/srv"})}))
    assert fields["arguments"] == {"path": "/srv"}


# --- results -------------------------------------------------------------------------------------


@pytest.mark.requirement("C-36")
def test_of_a_result_only_size_and_digest_are_kept() -> None:
    result: dict[str, Json] = {"content": [{"type": "text", "text": "quite private"}]}
    raw = orjson.dumps(result)
    assert summarize(ToolResult(result=result)) == ResultSummary(
        status="success", size=len(raw), sha256=sha256(raw).hexdigest()
    )


def test_an_error_result_keeps_its_text() -> None:
    content: Json = [{"type": "text", "text": "no such"}, {"type": "image"}, {"text": "file"}, 7]
    summary = summarize(ToolResult(result={"isError": True, "content": content}))
    assert (summary.status, summary.error) == ("error", "no such\nfile")
    empty = summarize(ToolResult(result={"isError": True}))
    assert empty.error == "Unknown tool error"
    protocol = summarize(ToolResult(error={"code": -32000, "message": "gone"}))
    assert (protocol.status, protocol.error) == ("error", "gone")


# --- the chain -----------------------------------------------------------------------------------


def test_each_line_names_the_digest_of_the_one_before() -> None:
    """G20."""
    one, place = seal((b'{"a":1}',), GENESIS)
    two, last = seal((b'{"b":2}',), place)
    assert one == b'{"a":1,"seq":1,"prev":"' + b"0" * 64 + b'"}\n'
    assert two == b'{"b":2,"seq":2,"prev":"' + sha256(one[:-1]).hexdigest().encode() + b'"}\n'
    assert last.digest == digest_of(two[:-1])
