"""Who named the target of a call, and what a call does to it."""

from datetime import UTC, datetime

import pytest

from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect
from ironcurtain_proxy.model.conditions import NamedByCondition
from ironcurtain_proxy.model.request import (
    ByNobody,
    ByUser,
    InResult,
    NamedBy,
    Own,
    Target,
    TargetOrigin,
)
from tests.decision.test_authorizer import path, request

RESULT = InResult("web", "fetch", "example.org", datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("origin", "word"),
    [(ByUser(), "user"), (Own(), "own"), (RESULT, "result"), (ByNobody(), "nobody")],
)
def test_each_origin_has_its_word(origin: TargetOrigin, word: NamedBy) -> None:
    assert Target("to", "x", ("email-address",), origin).named_by == word


@pytest.mark.parametrize(
    ("role", "effect", "reaches"),
    [
        ("read-path", "reads", False),
        ("write-path", "writes", True),
        ("read-path", "writes", False),
        ("write-path", "reads", False),
        ("fetch-url", "reads", True),
        ("read-path", None, False),
    ],
)
def test_a_url_is_told_what_stands_in_it_and_a_path_that_is_read_is_told_nothing(
    role: ArgumentRole, effect: ToolEffect | None, *, reaches: bool
) -> None:
    assert Target("a", "x", (role,), ByNobody()).reaches_out(effect) is reaches


def test_the_condition_shows_its_roles_and_words() -> None:
    condition = NamedByCondition(roles=frozenset({"email-address"}), by=frozenset({"result"}))
    assert dict(condition.collections()) == {"roles": {"email-address"}, "by": {"result"}}


def test_a_call_without_a_target_of_the_roles_is_named_by_nobody_and_no_one() -> None:
    condition = NamedByCondition(roles=frozenset({"email-address"}), by=frozenset({"nobody"}))
    assert not condition.holds(request(), None)


def test_where_nobody_looked_a_target_is_named_by_nobody() -> None:
    condition = NamedByCondition(roles=frozenset({"write-path"}), by=frozenset({"nobody"}))
    assert condition.holds(request(path("destination", ("write-path",), "/ws/a")), "write-path")
