"""The review line by line."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.cli.review_screen.plain_review import HELP, PlainReview
from ironcurtain_proxy.mailbox.answering import ReviewerAnswer
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest
from ironcurtain_proxy.mailbox.messages import Owner, read_request, request_bytes, request_name
from tests.mailbox.mailbox_fixture import CLOCK, escalation, within
from tests.tables import table

NOW = CLOCK.now()


def a_request() -> PendingRequest:
    asked = escalation(candidates=(within("/etc"),))
    request = read_request(request_name(asked.id), request_bytes(asked, Owner(1, "")))
    assert request is not None
    return PendingRequest(Path("/box"), request)


def everything(waiting: Sequence[PendingRequest], approve: bool) -> list[PendingRequest]:
    return list(waiting)


class Talk:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.review = PlainReview(say=self.lines.append, all_of=everything)


def test_every_request_is_printed_once_with_a_number_of_its_own() -> None:
    talk, first, second = Talk(), a_request(), a_request()
    talk.review.show([first], NOW)
    talk.review.show([first, second], NOW)
    banners = [line for line in talk.lines if line.startswith("[")]
    assert [line[:4] for line in banners] == ["[1] ", "[2] "]


def test_a_number_is_never_used_again() -> None:
    talk, first, second = Talk(), a_request(), a_request()
    talk.review.show([first], NOW)
    talk.review.show([second], NOW)
    assert "[1] is over: answered, expired or withdrawn" in talk.lines
    assert talk.review.read("/approve 1", NOW) is None
    chosen = talk.review.read("/approve 2", NOW)
    assert chosen is not None
    assert chosen.chosen == (second,)


def test_equal_calls_are_named_and_answered_together() -> None:
    talk, first, second, other = Talk(), a_request(), a_request(), a_request()
    asked = replace(other.request, why=(("policy", "another reason"),))
    other = replace(other, request=asked)
    talk.review.show([first, other, second], NOW)
    assert "    equal: [1] [3]: /approve= 3 or /deny= 3 for all" in talk.lines
    command = talk.review.read("/deny= 1 not now", NOW)
    assert command is not None
    assert command.chosen == (first, second)
    assert command.answer == ReviewerAnswer(approved=False, note="not now")


def test_a_changed_call_is_approved_and_what_is_no_change_is_said() -> None:
    talk, one = Talk(), a_request()
    one = replace(one, request=replace(one.request, may_edit=True))
    talk.review.show([one], NOW)
    command = talk.review.read('/edit 1 {"path": "/etc/other file"}', NOW)
    assert command is not None
    assert command.answer == ReviewerAnswer(approved=True, changed={"path": "/etc/other file"})
    for text in ("", "{", "{}", "[]"):
        assert talk.review.read(f"/edit 1 {text}", NOW) is None
    assert talk.lines[-4:] == [
        "[1] the changed arguments are not JSON",
        "[1] the changed arguments are not JSON",
        "[1] nothing is changed: approve the call as it is",
        "[1] the changed arguments are not a JSON object",
    ]


LINES = {
    "approve": ("/approve 1", ReviewerAnswer(approved=True)),
    "approve and remember": ("/approve+ 1\r", ReviewerAnswer(approved=True, remember=0)),
    "remember another kind": ("/approve+2 1", ReviewerAnswer(approved=True, remember=1)),
    "deny": ("  /deny 1  ", ReviewerAnswer(approved=False)),
    "deny with words": (
        "/deny 1 not  this one",
        ReviewerAnswer(approved=False, note="not  this one"),
    ),
    "all": ("/deny all", ReviewerAnswer(approved=False)),
}


@pytest.mark.requirement("C-6")
@pytest.mark.parametrize(("line", "given"), LINES.values(), ids=LINES)
def test_a_line_answers(line: str, given: ReviewerAnswer) -> None:
    talk, one = Talk(), a_request()
    talk.review.show([one], NOW)
    command = talk.review.read(line, NOW)
    assert command is not None
    assert (command.answer, command.chosen) == (given, (one,))


@pytest.mark.parametrize(
    "line",
    table("cli/review_screen/plain_review.anything_else_answers_nothing", list[str]),
)
def test_anything_else_answers_nothing(line: str) -> None:
    talk = Talk()
    talk.review.show([a_request()], NOW)
    before = len(talk.lines)
    assert talk.review.read(line, NOW) is None
    assert len(talk.lines) == before + 1
    assert talk.lines[-1] == HELP or "no pending escalation" in talk.lines[-1]


def test_pending_prints_again_what_is_open() -> None:
    talk = Talk()
    assert talk.review.read("/pending", NOW) is None
    assert talk.lines == ["nothing is pending"]
    talk.review.show([a_request()], NOW)
    shown = len(talk.lines) - 1
    assert talk.review.read("/pending", NOW) is None
    assert len(talk.lines) == 1 + 2 * shown
