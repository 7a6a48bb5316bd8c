"""What may be remembered of a call that no pattern describes."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.grants.book import (
    GrantBook,
    is_never_remembered,
    whole_call_candidates,
    whole_tool_candidate,
)
from ironcurtain_proxy.grants.grant_settlement import settle_by_grants
from ironcurtain_proxy.grants.patterns import EscalatedCall, Places, candidates
from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.grant import CallPattern, Grant, GrantId
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue, SqlValue, Value
from ironcurtain_proxy.model.request import TextValue as Text
from ironcurtain_proxy.model.values import Json, RealPath, SqlEffect

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REASONS = (
    OriginReason(origin="policy", ground=Ground("structural-unknown-tool", "unknown")),
    OriginReason(origin="tool-policy", ground=Ground("approval-policy:dangerous", "asks")),
)


def call(
    role: ArgumentRole = "unclear",
    value: Value | None = None,
    *,
    annotated: bool = False,
    effect: ToolEffect | None = None,
    text: str = "x",
) -> EscalatedCall:
    arguments: dict[str, Json] = {"a": text}
    return EscalatedCall(
        server="notes",
        tool="do",
        definition="d1",
        request=AccessRequest(
            server="notes",
            tool="do",
            annotated=annotated,
            has_arguments=True,
            arguments=(ArgumentFact("a", (role,), (value or Text(text),)),),
            effect=effect,
        ),
        arguments=arguments,
        roles=(role,),
    )


def sql(effect: SqlEffect) -> EscalatedCall:
    return call("sql", SqlValue("…", effect, effect), annotated=True)


def remembered(pattern: CallPattern) -> GrantBook:
    book = GrantBook()
    book.add(Grant(id=GrantId("g"), pattern=pattern, created=NOW, source="", reason=""))
    return book


def is_spared(book: GrantBook, asked: EscalatedCall) -> bool:
    return not settle_by_grants(REASONS, asked, book, NOW).open


def test_the_identical_call_and_the_whole_tool_are_offered_for_an_unknown_tool() -> None:
    identical, whole = whole_call_candidates(call())
    assert is_spared(remembered(identical), call())
    assert not is_spared(remembered(identical), call(text="y"))
    assert is_spared(remembered(whole), call(text="y"))


def test_a_tool_that_was_described_or_redefined_meanwhile_is_asked_about() -> None:
    _, whole = whole_call_candidates(call())
    path = PathValue("/work/x", RealPath.from_text("/work/x"))
    assert not is_spared(remembered(whole), call("write-path", path, annotated=True))
    assert not is_spared(remembered(whole), replace(call(), definition="d2"))
    assert not is_spared(remembered(whole), replace(call(), tool="other"))


def test_a_described_tool_is_remembered_whole_where_it_names_its_own_things_alone() -> None:
    identical, _ = whole_call_candidates(call(annotated=True))
    assert identical.digest is not None
    assert len(whole_call_candidates(sql("writes"))) == 1
    path = PathValue("/work/x", RealPath.from_text("/work/x"))
    assert whole_call_candidates(call("write-path", path, annotated=True)) == ()


def test_one_approval_covers_all_things_of_a_service_and_no_place_outside_it() -> None:
    every = whole_tool_candidate(call("identifier", annotated=True, text="task-1"))
    assert every is not None
    book = remembered(every)
    other = call("identifier", Text("task-2"), annotated=True, text="task-2")
    assert is_spared(book, other)
    for text in ("/etc/passwd", "~/.ssh/id_rsa", "a/../../b", "https://example.com", "../x"):
        assert not is_spared(book, call("identifier", Text(text), annotated=True, text=text)), text
    secrets = (".env", "config/.env", "id_rsa", ".e?v")
    for text in (*secrets, "eve@evil.example", "a; Eve <eve@evil.example>", "evil.example/?q=x"):
        for name in ("identifier", "unclear"):
            assert not is_spared(book, call(name, Text(text), annotated=True, text=text)), text
    for text in ("v1.2/x", "lodash@4.17.21", "src.notes.todo", "owner/repo", "a@b"):
        assert is_spared(book, call("unclear", Text(text), annotated=True, text=text)), text
    for role in ("message", "sql", "fetch-url", "email-address", "read-path", "command"):
        assert not is_spared(book, call(role, annotated=True)), role


@pytest.mark.parametrize("effect", ["sends", "runs", "destroys"])
def test_a_tool_that_sends_runs_or_deletes_is_not_remembered_as_a_whole(effect: ToolEffect) -> None:
    asked = call("identifier", annotated=True, effect=effect)
    assert whole_tool_candidate(asked) is None
    every = whole_tool_candidate(call("identifier", annotated=True))
    assert every is not None
    assert not is_spared(remembered(every), asked)


def test_what_deletes_is_never_remembered() -> None:
    for asked in (sql("destroys"), sql("runs"), call(annotated=True, effect="destroys")):
        assert is_never_remembered(asked)
        assert whole_call_candidates(asked) == ()
    assert not is_never_remembered(sql("reads"))


def test_no_earlier_grant_spares_what_deletes() -> None:
    (identical,) = whole_call_candidates(sql("writes"))
    assert is_spared(remembered(identical), sql("writes"))
    assert not is_spared(remembered(identical), sql("destroys"))


def test_a_deletion_of_a_named_path_is_remembered_by_that_path() -> None:
    path = PathValue("/work/x", RealPath.from_text("/work/x"))
    asked = call("delete-path", path, annotated=True, effect="destroys")
    assert not is_never_remembered(asked)


def naming(arguments: dict[str, Json], *facts: ArgumentFact) -> EscalatedCall:
    roles = dict.fromkeys(role for fact in facts for role in fact.roles)
    request = AccessRequest(
        server="notes", tool="do", annotated=True, has_arguments=True, arguments=facts
    )
    return EscalatedCall(
        server="notes",
        tool="do",
        definition="d1",
        request=request,
        arguments=arguments,
        roles=(*roles,),
    )


def test_a_pattern_is_offered_where_what_no_pattern_describes_is_left_out() -> None:
    file = "/w/data/a.csv"
    path = ArgumentFact(
        "path", ("write-path",), (PathValue(text=file, path=RealPath.from_text(file)),)
    )
    left_out = naming({"path": file}, path, ArgumentFact("links", ("unclear",), ()))
    assert whole_call_candidates(left_out) == ()
    (pattern,) = candidates(left_out, Places(directories=frozenset()))
    book = GrantBook()
    book.add(Grant(id=GrantId("g"), pattern=pattern, created=NOW, source="", reason=""))
    assert not settle_by_grants(REASONS[:1], left_out, book, NOW).open
    given = ArgumentFact("links", ("unclear",), (Text("x"),))
    with_links = naming({"path": file, "links": "x"}, path, given)
    assert settle_by_grants(REASONS[:1], with_links, book, NOW).open
    assert whole_call_candidates(with_links)


def test_a_call_that_leaves_out_all_that_it_could_name_can_be_remembered_alone() -> None:
    assert whole_call_candidates(naming({}, ArgumentFact("links", ("unclear",), ())))
