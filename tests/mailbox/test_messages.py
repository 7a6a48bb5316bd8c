"""What the files of the mailbox say."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.mailbox.messages import (
    MAX_NOTE,
    Credential,
    Expected,
    Owner,
    clean_line,
    digest_of,
    judge_response,
    read_request,
    request_bytes,
    request_id,
    request_name,
    response_bytes,
    response_id,
)
from ironcurtain_proxy.model.decision import HUMAN, Program
from ironcurtain_proxy.model.escalation import Approved, Declined
from tests.mailbox.mailbox_fixture import an_id, escalation, within
from tests.tables import table

EXPECTED = Expected(digest="d" * 64, require_digest=False, candidates=2, session="session-1")
STRICT = Expected(digest="d" * 64, require_digest=True, candidates=2, session="session-1")
OWNER = Owner(42, "1000")

REFUSED = {
    "nothing": b"",
    "half an object": b'{"decision":"appro',
    "true": b"true",
    "a number": b"1",
    "a string": b'"approved"',
    "an array": b'["approved"]',
    "an array of an approval": b'[{"decision":"approved"}]',
    "an empty object": b"{}",
    "a capital": b'{"decision":"Approved"}',
    "capitals": b'{"decision":"APPROVED"}',
    "another word": b'{"decision":"approve"}',
    "a yes": b'{"decision":"yes"}',
    "a blank after it": b'{"decision":"approved "}',
    "a line after it": b'{"decision":"approved\\n"}',
    "another key": b'{"Decision":"approved"}',
    "a typo in the key": b'{"decison":"approved"}',
    "no decision": b'{"decision":null}',
    "true as decision": b'{"decision":true}',
    "a list as decision": b'{"decision":["approved"]}',
    "an object as decision": b'{"decision":{"approved":true}}',
    "two objects": b'{"decision":"approved"}{"decision":"approved"}',
    "something after it": b'{"decision":"approved"} x',
    "a byte order mark": b'\xef\xbb\xbf{"decision":"approved"}',
    "UTF-16": '{"decision":"approved"}'.encode("utf-16"),
    "bytes that are no text": b'{"decision":"approved","note":"\xff"}',
    "a trailing comma": b'{"decision":"approved",}',
    "single quotes": b"{'decision':'approved'}",
    "a comment": b'{"decision":"approved"} // yes',
    "NaN": b'{"decision":"approved","whitelistSelection":NaN}',
    "a note that is no text": b'{"decision":"approved","note":1}',
    "no note, but null": b'{"decision":"approved","note":null}',
    "a digest that is wrong": b'{"decision":"approved","requestDigest":"' + b"e" * 64 + b'"}',
    "a digest in capitals": b'{"decision":"approved","requestDigest":"' + b"D" * 64 + b'"}',
    "an empty digest": b'{"decision":"approved","requestDigest":""}',
    "a digest that is null": b'{"decision":"approved","requestDigest":null}',
    "a reviewer that is no name": b'{"decision":"approved","reviewer":"a b"}',
    "an empty reviewer": b'{"decision":"approved","reviewer":""}',
    "a reviewer that is null": b'{"decision":"approved","reviewer":null}',
    "deep nesting": b'{"decision":"approved","x":' + b"[" * 20000 + b"]" * 20000 + b"}",
}


@pytest.mark.requirement("X-8")
@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
def test_whatever_is_not_an_explicit_approval_is_refused(raw: bytes) -> None:
    """G12."""
    ruling = judge_response(raw, EXPECTED)
    assert isinstance(ruling, Declined)
    assert ruling.kind == "invalid"
    assert ruling.reason


@pytest.mark.requirement("X-7")
@pytest.mark.parametrize(
    "raw",
    [
        b'{"decision":"denied","decision":"approved"}',
        b'{"decision":"approved","decision":"approved"}',
        b'{"decision":"approved","\\u0064ecision":"approved"}',
        b'{"decision":"approved","x":[{"a":1,"a":2}]}',
    ],
)
def test_an_answer_that_says_a_thing_twice_is_none(raw: bytes) -> None:
    ruling = judge_response(raw, EXPECTED)
    assert isinstance(ruling, Declined)
    assert ruling.kind == "invalid"


def test_a_session_does_not_review_itself() -> None:
    ruling = judge_response(b'{"decision":"approved","reviewer":"session-1"}', EXPECTED)
    assert isinstance(ruling, Declined)
    assert "itself" in ruling.reason


def test_the_originals_answers_are_understood() -> None:
    assert judge_response(b'{"decision":"approved"}', EXPECTED) == Approved(by=HUMAN)
    assert judge_response(b'{"decision":"denied"}', EXPECTED) == Declined(by=HUMAN, kind="denied")
    chosen = judge_response(b'{"decision":"approved","whitelistSelection":1}', EXPECTED)
    assert chosen == Approved(by=HUMAN, remember=1)


SELECTIONS: dict[str, bytes] = {
    "negative": b"-1",
    "beyond the last": b"2",
    "huge": b"99999999999999999999999",
    "a float": b"0.0",
    "a text": b'"0"',
    "true": b"true",
    "a list": b"[0]",
}


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
def test_an_answer_that_chooses_what_was_not_offered_approves_nothing(selection: bytes) -> None:
    raw = b'{"decision":"approved","whitelistSelection":' + selection + b"}"
    ruling = judge_response(raw, EXPECTED)
    assert isinstance(ruling, Declined)
    assert (ruling.kind, "not offered" in ruling.reason) == ("invalid", True)
    denied = judge_response(raw.replace(b"approved", b"denied"), EXPECTED)
    assert (denied.by, denied.kind) == (HUMAN, "denied") if isinstance(denied, Declined) else False


def test_without_a_digest_an_approval_counts_unless_it_is_required() -> None:
    raw = b'{"decision":"approved"}'
    assert isinstance(judge_response(raw, EXPECTED), Approved)
    assert isinstance(judge_response(raw, STRICT), Declined)
    shown = response_bytes(approved=True, digest="d" * 64, remember=None, note="")
    assert isinstance(judge_response(shown, STRICT), Approved)


def test_a_reviewer_is_named() -> None:
    raw = response_bytes(approved=False, digest="x", remember=0, note="no", reviewer="mgr-1")
    assert judge_response(raw, EXPECTED) == Declined(
        by=Program("mgr-1", "named"), kind="denied", note="no"
    )


def test_a_note_is_one_line_of_visible_characters() -> None:
    assert clean_line(" use\n/tmp\x1b[31m \u202einstead\u200b ") == "use /tmp[31m instead"
    longest = b'{"decision":"denied","note":"' + b"x" * MAX_NOTE + b'"}'
    ruling = judge_response(longest, EXPECTED)
    assert isinstance(ruling, Declined)
    assert (ruling.kind, len(ruling.note)) == ("denied", MAX_NOTE)
    too_long = judge_response(longest.replace(b"xx", b"xxx", 1), EXPECTED)
    assert isinstance(too_long, Declined)
    assert too_long.kind == "invalid"


@given(st.binary(max_size=200))
def test_no_bytes_at_all_approve_unless_they_say_so(raw: bytes) -> None:
    ruling = judge_response(raw, EXPECTED)
    if isinstance(ruling, Approved):
        assert orjson.loads(raw)["decision"] == "approved"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["approved", "denied"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from(
    ["decision", "note", "reviewer", "requestDigest", "whitelistSelection", "Decision", "x"]
)


@pytest.mark.requirement("X-8")
@given(st.dictionaries(_KEYS, _JSON, max_size=5))
def test_an_approval_is_always_explicit_and_of_what_was_asked(fields: dict[str, object]) -> None:
    try:
        raw = orjson.dumps(fields)
    except TypeError:
        return
    if isinstance(judge_response(raw, EXPECTED), Approved):
        assert fields["decision"] == "approved"
        assert fields.get("requestDigest", EXPECTED.digest) == EXPECTED.digest
        assert fields.get("reviewer") != "session-1"


def test_a_request_says_what_the_call_does_beside_the_reason_why_it_is_asked() -> None:
    told = ("Reads /etc/hosts, outside the workspace.", "Reads b.")
    raw = request_bytes(replace(escalation(), told=told), OWNER)
    fields = orjson.loads(raw)
    assert (fields["reason"], fields["told"]) == ("Reads outside the workspace", [*told])
    read = read_request(request_name(fields["escalationId"]), raw)
    assert read is not None
    assert read.told == told


def test_a_request_has_the_originals_keys_first_and_in_its_shape() -> None:
    asked = escalation(candidates=(within("/etc"),))
    raw = request_bytes(asked, OWNER)
    fields = orjson.loads(raw)
    assert list(fields)[:6] == [
        "escalationId",
        "serverName",
        "toolName",
        "arguments",
        "reason",
        "whitelistCandidates",
    ]
    assert fields["arguments"] == {"path": "/etc/hosts"}
    assert fields["reason"] == "Reads outside the workspace"
    assert fields["whitelistCandidates"] == [
        {"description": "Allow files/read_file read-path within /etc"}
    ]
    assert raw.startswith(b'{\n  "escalationId": ')
    assert fields["owner"] == {"pid": 42, "startTime": "1000"}
    assert "context" not in fields
    assert "whitelistCandidates" not in orjson.loads(request_bytes(escalation(), OWNER))


def test_a_request_is_read_back_as_it_was_written() -> None:
    asked = escalation(candidates=(within("/etc"),))
    raw = request_bytes(asked, OWNER)
    read = read_request(request_name(asked.id), raw)
    assert read is not None
    assert (read.server, read.tool, read.arguments) == ("files", "read_file", asked.arguments)
    assert (read.rule, read.origins, read.roles) == (
        "outside-workspace",
        ("policy",),
        ("read-path",),
    )
    assert read.candidates == ("Allow files/read_file read-path within /etc",)
    assert read.digest == digest_of(raw)
    assert read.owner == OWNER
    assert read.expires is not None
    assert abs((read.expires - asked.deadline).total_seconds()) < 0.002


def test_a_request_of_the_original_is_read() -> None:
    identity = an_id()
    raw = orjson.dumps(
        {
            "escalationId": identity,
            "serverName": "filesystem",
            "toolName": "read_file",
            "arguments": {"path": "/etc/hosts"},
            "reason": "Reads outside",
        }
    )
    read = read_request(request_name(identity), raw)
    assert read is not None
    assert (read.owner, read.expires, read.roles) == (None, None, None)
    assert read.alone


TOGETHER: dict[str, tuple[object, bool]] = {
    "harmless": ([], True),
    "deletes": (["it deletes"], False),
    "an earlier version": (None, False),
    "no list": ("", False),
    "null": ({}, False),
}


@pytest.mark.parametrize(("alone", "together"), TOGETHER.values(), ids=TOGETHER)
def test_only_what_its_proxy_calls_harmless_is_approved_together(
    alone: object, together: bool
) -> None:
    """R-28."""
    identity = an_id()
    raw = orjson.dumps(
        {
            "escalationId": identity,
            "serverName": "s",
            "toolName": "t",
            "arguments": {},
            "reason": "",
            "roles": ["read-path"],
            **({} if alone is None else {"alone": alone}),
        }
    )
    read = read_request(request_name(identity), raw)
    assert read is not None
    assert bool(read.alone) is not together


@pytest.mark.parametrize(
    "name",
    table("mailbox/messages.other_names_are_no_requests", list[str]),
)
def test_other_names_are_no_requests(name: str) -> None:
    assert request_id(name) is None
    assert response_id(name.replace("request", "response")) is None


def test_a_request_under_another_name_or_that_no_screen_could_show_is_none() -> None:
    asked = escalation(arguments={"a": "deep"})
    raw = request_bytes(asked, OWNER)
    assert read_request(request_name(an_id()), raw) is None
    assert read_request(request_name(asked.id), raw) is not None
    deep = raw.replace(b'"deep"', b"[" * 300 + b"]" * 300)
    assert read_request(request_name(asked.id), deep) is None


def test_only_a_person_who_names_what_was_shown_may_change_arguments() -> None:
    may = replace(EXPECTED, may_edit=True)
    answer = {"decision": "approved", "requestDigest": "d" * 64, "arguments": {"path": "/b"}}
    ruling = judge_response(orjson.dumps(answer), may)
    assert ruling == Approved(by=HUMAN, changed={"path": "/b"})
    denied = judge_response(orjson.dumps({**answer, "decision": "denied"}), EXPECTED)
    assert isinstance(denied, Declined)
    assert denied.kind == "denied"
    credential = Credential("night", "t" * 40)
    fields = {**answer, "escalationId": "", "reviewer": "night", "note": ""}
    proved = {**fields, "proof": credential.proof(fields)}
    for raw, expected in (
        (answer, EXPECTED),
        ({**answer, "arguments": []}, may),
        ({**answer, "arguments": {}}, may),
        ({**answer, "whitelistSelection": 0}, may),
        ({**answer, "requestDigest": "e" * 64}, may),
        ({name: value for name, value in answer.items() if name != "requestDigest"}, may),
        ({**answer, "reviewer": "somebody"}, may),
        (proved, replace(may, credential=credential)),
    ):
        ruling = judge_response(orjson.dumps(raw), expected)
        assert isinstance(ruling, Declined)
        assert ruling.kind == "invalid"
