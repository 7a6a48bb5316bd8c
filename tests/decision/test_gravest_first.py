"""Of several things that are asked about, people read the gravest first."""

from typing import get_args

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.decision.rules import combine, gravest_first, with_omitted
from ironcurtain_proxy.model.annotation import GRAVEST_FIRST, ArgumentRole
from ironcurtain_proxy.model.decision import Allow, Deny, Escalate, Ground
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue
from ironcurtain_proxy.model.values import RealPath

READ = Ground("ask-read", "Reading needs approval.")
WRITE = Ground("ask-write", "Writing needs approval.")
DELETE = Ground("ask-delete", "Deleting needs approval.")


def test_every_role_has_its_place() -> None:
    assert sorted(GRAVEST_FIRST) == sorted(get_args(ArgumentRole))


def test_what_deletes_is_named_before_what_writes_and_reads() -> None:
    decision = combine(
        [
            ("read-path", Escalate(READ)),
            ("write-path", Escalate(WRITE)),
            ("delete-path", Escalate(DELETE)),
        ]
    )
    assert decision.ground == READ
    shown = gravest_first(decision)
    assert shown.ground == Ground(
        "ask-delete", "Deleting needs approval; Writing needs approval; Reading needs approval"
    )
    assert isinstance(shown, Escalate)
    assert shown.roles == ("read-path", "write-path", "delete-path")


def test_one_reason_stays_as_it_is_written() -> None:
    decision = combine([("read-path", Escalate(READ)), ("write-path", Escalate(READ))])
    assert gravest_first(decision).ground == READ


def test_a_role_that_was_allowed_is_no_reason() -> None:
    decision = combine([("delete-path", Allow(DELETE)), ("read-path", Escalate(READ))])
    assert gravest_first(decision).ground == READ


@pytest.mark.parametrize("decision", [Allow(READ), Deny(READ), Escalate(READ)], ids=str)
def test_a_decision_without_roles_stays_as_it_is(decision: Allow | Deny | Escalate) -> None:
    assert gravest_first(decision) == decision


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((), 'The call leaves out "path", so its server chooses. Reading needs approval.'),
        ((PathValue("/srv", RealPath(("srv",))),), "Reading needs approval."),
    ],
)
def test_the_reason_says_which_argument_a_call_leaves_out(
    values: tuple[PathValue, ...], reason: str
) -> None:
    request = AccessRequest(
        server="files",
        tool="find",
        annotated=True,
        has_arguments=False,
        arguments=(ArgumentFact("path", ("read-path",), values),),
    )
    decision = with_omitted(Escalate(READ, ("read-path",), (READ,)), request)
    assert decision.ground == Ground("ask-read", reason)
    option = replace(request, arguments=(ArgumentFact("headers", ("unclear",), ()),))
    asked = Escalate(READ, ("unclear",), (READ,))
    assert with_omitted(asked, option) == asked, "an option that is left out is no place"
    for plain in (Allow(READ), Escalate(READ)):
        assert with_omitted(plain, request) == plain
