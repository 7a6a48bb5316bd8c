"""Kept grants read back as they were written, or not at all."""

from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.grants.book import Remembered
from ironcurtain_proxy.grants.format import (
    KeptGrant,
    can_be_kept,
    grants_file_bytes,
    read_grants_file,
)
from ironcurtain_proxy.model.grant import (
    CapabilityPattern,
    Constraint,
    ExactValue,
    GrantPattern,
    OnHost,
    Pattern,
    SameFlag,
    WithinDirectory,
)
from ironcurtain_proxy.model.values import Json, RealPath
from tests.e2e.raw_client import Message, at
from tests.grants.kept_grants import NOW, a_kept, kept_grants, several

pytestmark = pytest.mark.requirement("X-12")


@given(several)
def test_what_was_written_reads_back_the_same(grants: list[KeptGrant]) -> None:
    read = read_grants_file(grants_file_bytes(grants))
    assert read.grants == tuple(grants)
    assert read.problems == ()


@given(kept_grants())
def test_a_flag_keeps_its_type(kept: KeptGrant) -> None:
    """In Python 1, 1.0 and true are equal; to a tool they are not."""
    (read,) = read_grants_file(grants_file_bytes([kept])).grants
    assert repr(read) == repr(kept)


@given(several, st.data())
def test_a_torn_file_grants_nothing(grants: list[KeptGrant], data: st.DataObject) -> None:
    raw = grants_file_bytes(grants)
    read = read_grants_file(raw[: data.draw(st.integers(0, len(raw) - 1))])
    assert read.grants == ()
    assert read.problems != ()


@given(several, st.data())
def test_a_garbled_file_grants_no_more_than_it_did(
    grants: list[KeptGrant], data: st.DataObject
) -> None:
    raw = bytearray(grants_file_bytes(grants))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, max(len(raw) - 1, 0)))
        if data.draw(st.integers(0, 3)):
            raw[place : place + 1] = data.draw(st.sampled_from((b"0", b"1", b"7", b"a", b"B")))
        else:
            raw[place : place + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=40))
    assert set(map(repr, read_grants_file(bytes(raw)).grants)) <= set(map(repr, grants))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_a_fault_and_grant_nothing(raw: bytes) -> None:
    assert read_grants_file(raw).grants == ()


def test_a_file_that_says_a_thing_twice_grants_nothing() -> None:
    raw = grants_file_bytes([a_kept()])
    assert len(read_grants_file(raw).grants) == 1
    twice = raw.replace(b"{", b'{"grants":[],', 1)
    assert twice != raw
    assert read_grants_file(twice).grants == ()


def document(*grants: KeptGrant) -> Message:
    found = orjson.loads(grants_file_bytes(grants))
    assert isinstance(found, dict)
    return found


def signed(entry: Message) -> Message:
    """With the digest of what it says now: as one would write it who knows how."""
    said = {name: value for name, value in entry.items() if name != "digest"}
    return {**said, "digest": sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()}


def changed(change: Callable[[Message], None], *, sign: bool = True) -> bytes:
    file = document(a_kept("g1"), a_kept("g2"))
    entries = at(file, "grants")
    assert isinstance(entries, list)
    entry = entries[0]
    assert isinstance(entry, dict)
    change(entry)
    entries[0] = signed(entry) if sign else entry
    return orjson.dumps(file)


def put(*way: str | int, value: Json) -> Callable[[Message], None]:
    def change(entry: Message) -> None:
        place = at(entry, *way[:-1])
        last = way[-1]
        if isinstance(place, list):
            assert isinstance(last, int)
            place[last] = value
        else:
            assert isinstance(place, dict)
            place[str(last)] = value

    return change


def test_an_entry_that_somebody_edited_is_ignored_and_its_neighbour_is_not() -> None:
    edit = put("expiresAt", value="2039-01-01T00:00:00+00:00")
    read = read_grants_file(changed(edit, sign=False))
    assert [kept.id for kept in read.grants] == ["g2"]
    assert read.problems == ("grant 1 is ignored: it was changed",)
    assert len(read_grants_file(changed(edit)).grants) == 2


CONDITION = ("pattern", "constraints", 0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(put("id", value=""), id="no id"),
        pytest.param(put("id", value="g2"), id="another one's id"),
        pytest.param(put("scope", value="session"), id="a session's"),
        pytest.param(put("scope", value="user"), id="the user's, with a workspace"),
        pytest.param(put("workspace", value=None), id="a project's without one"),
        pytest.param(put("workspace", value="work/one"), id="relative workspace"),
        pytest.param(put("policyVersion", value=""), id="no policy"),
        pytest.param(put("serverDigest", value=None), id="no server"),
        pytest.param(put("createdAt", value="2026-01-01"), id="a day"),
        pytest.param(put("createdAt", value="2026-01-01T12:00:00"), id="no zone"),
        pytest.param(put("createdAt", value="2026-01-01T12:00:00+01:00"), id="another zone"),
        pytest.param(put("createdAt", value="0001-01-01T00:00:00+23:00"), id="before all time"),
        pytest.param(put("createdAt", value="20260101T120000Z"), id="a time in other letters"),
        pytest.param(put("createdAt", value="soon"), id="no time"),
        pytest.param(put("expiresAt", value=None), id="never expires"),
        pytest.param(put("expiresAt", value="2025-01-01T12:00:00+00:00"), id="expires before"),
        pytest.param(put("uses", value=-1), id="uses below nothing"),
        pytest.param(put("uses", value=True), id="uses true"),
        pytest.param(put("uses", value=3), id="used at no time"),
        pytest.param(put("lastUsed", value="2026-01-02T12:00:00+00:00"), id="unused at a time"),
        pytest.param(put("source", value=7), id="a number for a text"),
        pytest.param(put("more", value=1), id="another key"),
        pytest.param(put("pattern", value=None), id="no pattern"),
        pytest.param(put("pattern", "kind", value="capability"), id="a capability"),
        pytest.param(put("pattern", "kind", value="tool"), id="a tool with constraints"),
        pytest.param(put("pattern", "definition", value=""), id="any definition"),
        pytest.param(put("pattern", "description", value="a\nb"), id="two lines"),
        pytest.param(put("pattern", "constraints", value=[]), id="no condition"),
        pytest.param(put("pattern", "constraints", value={}), id="conditions no list"),
        pytest.param(
            put("pattern", "constraints", value=[{"kind": "flag", "argument": "a", "value": 1}]),
            id="flags alone",
        ),
        pytest.param(put(*CONDITION, value="within"), id="a condition no object"),
        pytest.param(put(*CONDITION, "kind", value="anything"), id="unknown condition"),
        pytest.param(put(*CONDITION, "kind", value="host"), id="another condition's keys"),
        pytest.param(put(*CONDITION, "directory", value="/"), id="everything"),
        pytest.param(put(*CONDITION, "directory", value="/srv/../etc"), id="not a real path"),
        pytest.param(put(*CONDITION, "directory", value="/srv//out"), id="not a plain path"),
        pytest.param(put(*CONDITION, "role", value="write-history"), id="history"),
        pytest.param(put(*CONDITION, "role", value="fetch-url"), id="a URL's role for a path"),
        pytest.param(put(*CONDITION, "role", value="root-path"), id="unknown role"),
        pytest.param(put("pattern", "constraints", 1, "value", value=[]), id="a list for a flag"),
    ],
)
def test_an_entry_that_was_not_written_here_is_ignored(change: Callable[[Message], None]) -> None:
    read = read_grants_file(changed(change))
    assert len(read.grants) == 1
    assert len(read.problems) == 1


def leaves(value: Json) -> list[tuple[str | int, ...]]:
    """The ways to all single values."""
    if isinstance(value, dict):
        return [(name, *way) for name, member in value.items() for way in leaves(member)]
    if isinstance(value, list):
        return [(place, *way) for place, item in enumerate(value) for way in leaves(item)]
    return [()]


@given(kept_grants(), st.data())
def test_an_entry_in_which_any_value_is_another_is_ignored(
    kept: KeptGrant, data: st.DataObject
) -> None:
    """Another of its own values, where the shape may well be right."""
    file = document(kept)
    entry = at(file, "grants", 0)
    assert isinstance(entry, dict)
    ways = leaves(entry)
    way = data.draw(st.sampled_from(ways))
    other = at(entry, *data.draw(st.sampled_from(ways)))
    assume(repr(at(entry, *way)) != repr(other))
    put(*way, value=other)(entry)
    assert read_grants_file(orjson.dumps(file)).grants == ()


@pytest.mark.parametrize(
    "file",
    [
        {"version": True, "grants": []},
        {"version": 1.0, "grants": []},
        {"version": 1, "grants": {}},
        {"version": 1},
        {"version": 1, "grants": [], "more": 1},
        [],
        None,
    ],
)
def test_another_document_is_no_file_of_grants(file: Json) -> None:
    read = read_grants_file(orjson.dumps(file))
    assert (read.grants, read.problems) == ((), ("it is no file of grants: nothing is read",))
    assert not read.is_foreign


def test_the_file_of_another_version_is_not_read_and_known_as_such() -> None:
    read = read_grants_file(orjson.dumps({**document(a_kept()), "version": 2}))
    assert read.grants == ()
    assert read.is_foreign


def with_pattern(pattern: Pattern) -> KeptGrant:
    kept = a_kept()
    grant = replace(kept.remembered.grant, pattern=pattern)
    return replace(kept, remembered=replace(kept.remembered, grant=grant))


def with_condition(*conditions: Constraint) -> KeptGrant:
    pattern = a_kept().remembered.grant.pattern
    assert isinstance(pattern, GrantPattern)
    return with_pattern(replace(pattern, constraints=conditions))


NAMED = OnHost("fetch-url", "example.com")


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(with_condition(NAMED, SameFlag("a", 2**70)), id="more than JSON holds"),
        pytest.param(with_condition(NAMED, SameFlag("a", float("nan"))), id="no number"),
        pytest.param(with_condition(NAMED, SameFlag("a", float("inf"))), id="no end"),
        pytest.param(with_condition(ExactValue("github-owner", "\udcff")), id="no text"),
        pytest.param(
            with_condition(WithinDirectory("read-path", RealPath(("a\udcff",)))), id="no name"
        ),
        pytest.param(with_condition(WithinDirectory("read-path", RealPath(()))), id="everything"),
        pytest.param(
            with_pattern(CapabilityPattern(capability="fs.write", description="d")),
            id="a capability",
            marks=pytest.mark.requirement("D-29", "D-30"),
        ),
        pytest.param(
            replace(
                a_kept(),
                remembered=Remembered(grant=replace(a_kept().remembered.grant, expires=None)),
            ),
            id="no end of time",
        ),
    ],
)
def test_what_would_not_read_back_the_same_is_not_kept(kept: KeptGrant) -> None:
    assert not can_be_kept(kept)


def test_an_ordinary_grant_can_be_kept() -> None:
    assert can_be_kept(a_kept())
    used = Remembered(
        grant=a_kept().remembered.grant, uses=2, last_used=NOW + timedelta(microseconds=1)
    )
    assert can_be_kept(replace(a_kept(), remembered=used))
