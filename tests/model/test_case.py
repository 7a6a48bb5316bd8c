"""What a call's record says of its server."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.case import Arrival, Case, Judgement, Settlement
from ironcurtain_proxy.model.decision import (
    AUTO_APPROVER,
    HUMAN,
    KERNEL,
    Allow,
    Decider,
    Decision,
    Deny,
    Escalate,
    Grants,
    Ground,
    Program,
    asking_answer,
    held_part,
)
from ironcurtain_proxy.model.escalation import Approved, EscalationId, Origin, OriginReason
from ironcurtain_proxy.model.operation import Operation, RequestId
from ironcurtain_proxy.model.reply import AuditRecord, PutBack, ResultStatus, ResultSummary
from ironcurtain_proxy.model.signing import Quorum
from ironcurtain_proxy.model.values import Json
from tests.questions import a_question


def a_case(decision: Decision, server: str = "server") -> Case:
    call = Operation(
        request_id=RequestId("r"),
        exposed_name="tool",
        server=server,
        tool="tool",
        arguments={},
        params={},
    )
    return Case(
        arrival=Arrival(
            call=call,
            session="s",
            policy_version="",
            time=datetime(2026, 11, 21, tzinfo=UTC),
            started=0.0,
        ),
        call=call,
        arguments={},
        judged=Judgement(decision=decision),
    )


def said_of(server: str, *, confined: bool) -> bool | None:
    case = a_case(Deny(Ground("rule", "reason")), server)
    ended = ResultSummary(status="denied")
    return case.record(ended, elapsed=0.0, sandboxed=confined).sandboxed


@pytest.mark.requirement("C-15")
@pytest.mark.parametrize("confined", [True, False])
def test_a_record_says_of_its_server_whether_it_is_confined(confined: bool) -> None:
    assert said_of("filesystem", confined=confined) is confined


@pytest.mark.parametrize("name", ["ironcurtain", "unknown"])
def test_a_record_that_involves_no_server_says_nothing_of_one(name: str) -> None:
    assert said_of(name, confined=False) is None


def test_a_confined_server_of_such_a_name_is_said_to_be_confined() -> None:
    assert said_of("unknown", confined=True) is True


def test_a_call_whose_server_started_late_is_recorded_as_that_server_s() -> None:
    case = a_case(Deny(Ground("rule", "reason")), "unknown")
    arrived = case.arrival
    case.locate("files", "read")
    record = case.record(ResultSummary(status="success"), elapsed=0.0, sandboxed=False)
    assert (record.server, record.tool) == ("files", "read")
    assert record.timestamp == arrived.time
    assert arrived.call.server == "unknown"


def test_what_overrules_a_judgement_takes_its_approval_away_and_leaves_its_reasons() -> None:
    case = a_case(Allow(Ground("rule", "reason")))
    judged = Judgement(decision=Escalate(Ground("r", "why")), reasons=(reason("policy"),))
    case.judge(judged)
    case.settle(settled(HUMAN))
    case.overrule(Ground("withdrawn", "gone"))
    record = case.record(ResultSummary(status="denied"), elapsed=1.0, sandboxed=False)
    assert (record.effect, record.rule, record.decided_by) == ("deny", "withdrawn", KERNEL)
    assert (record.origins, record.escalation_result) == ((), None)
    assert dict(record.context)["stages"] == ["kernel:escalate", "grants:open"]
    assert case.judged is judged


def reason(origin: Origin) -> OriginReason:
    return OriginReason(origin=origin, ground=Ground("r", "why"))


def stages(origins: tuple[Origin, ...], settlement: Settlement | None) -> Json:
    asked = Judgement(
        decision=Escalate(Ground("r", "why")), reasons=tuple([reason(origin) for origin in origins])
    )
    case = a_case(asked.decision)
    case.judge(asked)
    if settlement is not None:
        case.settle(settlement)
    record = case.record(ResultSummary(status="denied"), elapsed=0.0, sandboxed=False)
    return dict(record.context).get("stages")


def settled(by: Decider, **extra: Json) -> Settlement:
    return Settlement(
        effect="allow", reason="r", decided_by=by, result="approved", extra=tuple(extra.items())
    )


@pytest.mark.requirement("X-5")
@pytest.mark.parametrize(
    ("origins", "settlement", "expected"),
    [
        ((), None, None),
        (("policy",), None, ["kernel:escalate", "grants:open"]),
        (
            ("capability",),
            settled(Grants(("1",))),
            ["kernel:allow", "overlay:escalate", "grants:approve"],
        ),
        (
            ("policy", "tool-policy"),
            settled(Program("boss", "session"), engine={"action": "held"}),
            [
                *("kernel:escalate", "overlay:escalate", "grants:open", "engine:held"),
                "reviewer:boss:approved",
            ],
        ),
        (
            ("policy",),
            settled(AUTO_APPROVER, engine="not an object"),
            ["kernel:escalate", "grants:open", "auto-approver:approved"],
        ),
        (
            ("policy",),
            Settlement(effect="escalate", reason="r", decided_by=KERNEL, result=None),
            ["kernel:escalate", "grants:open"],
        ),
    ],
)
def test_an_escalated_call_s_record_lists_who_had_a_say_in_order(
    origins: tuple[Origin, ...], settlement: Settlement | None, expected: Json
) -> None:
    assert stages(origins, settlement) == expected


def test_a_record_names_what_an_answer_asks_for_and_how_long_the_call_took() -> None:
    asking = stopped(asked="elicitation")
    assert dict(asking.context)["asked"] == "elicitation"
    # The server had the call, though the agent gets no answer.
    assert asking.duration_ms == 2500
    refused = stopped(asked=None)
    assert "asked" not in dict(refused.context)
    assert refused.duration_ms == 0


def stopped(asked: str | None) -> AuditRecord:
    case = a_case(Allow(asking_answer(asked or "nothing")))
    return case.record(ResultSummary(status="denied", asked=asked), elapsed=2.5, sandboxed=False)


def test_the_words_about_an_answer_that_asks_name_what_it_asks_for() -> None:
    ground = asking_answer("sampling")
    assert ground.rule == "server-asks"
    assert "(sampling)" in ground.reason


def test_a_note_takes_the_place_of_the_one_before_it() -> None:
    case = a_case(Deny(Ground("rule", "reason")))
    case.note(("a", 1), ("b", 2))
    case.note_instead("a", 3)
    assert case.notes == (("b", 2), ("a", 3))


def test_a_settlement_that_does_not_hold_any_more_is_gone() -> None:
    case = a_case(Deny(Ground("rule", "reason")))
    case.settle(Settlement(effect="allow", reason="", decided_by=HUMAN, result=None))
    case.unsettle()
    assert case.settlement is None


def test_a_call_that_is_judged_again_is_neither_settled_nor_approved() -> None:
    case = a_case(Escalate(Ground("rule", "reason")))
    case.approve(EscalationId("e"))
    case.settle(settled(HUMAN))
    case.start_over()
    assert (case.settlement, case.question) == (None, None)


def test_a_record_says_how_long_reviewers_took() -> None:
    case = a_case(Escalate(Ground("rule", "reason")))
    case.waited = 1.25
    record = case.record(ResultSummary(status="denied"), elapsed=2.0, sandboxed=False)
    assert dict(record.context) == {"waitedMs": 1250}


def test_the_words_about_what_is_held_tell_what_it_is_and_who_has_to_look() -> None:
    ground = held_part("prompt", "changed")
    assert ground.rule == "pinned"
    assert ground.reason.startswith("The prompt changed. Nothing was done.")
    assert "the operator has to look" in ground.reason


PUT_BACK = PutBack("a was removed")
ALLOWED = Ground("rule", "reason")


@pytest.mark.parametrize(
    "happen",
    [
        lambda _: None,
        lambda case: case.note(("refusedBy", "kernel")),
        lambda case: case.note_instead("opened", ["example.com"]),
        lambda case: case.clean((PUT_BACK,)),
        lambda case: case.wait(2.0),
        lambda case: case.settle(settled(HUMAN, engine={"action": "asked"})),
        lambda case: case.overrule(Ground("defect", "another reason")),
        lambda case: case.judge(Judgement(decision=Deny(Ground("other", "why"))), {"a": 1}, "v2"),
    ],
)
@pytest.mark.parametrize("status", ["success", "error", "denied"])
def test_an_outcome_says_the_same_with_and_without_an_intent_before_it(
    happen: Callable[[Case], None], status: ResultStatus
) -> None:
    alone, after_intent = a_case(Allow(ALLOWED)), a_case(Allow(ALLOWED))
    after_intent.record(None, elapsed=0.5, sandboxed=False, client="one")
    happen(alone)
    happen(after_intent)
    end = ResultSummary(status=status, size=3, sha256="0" * 64)
    record = after_intent.record(end, elapsed=1.5, sandboxed=True, client="two")
    assert record == alone.record(end, elapsed=1.5, sandboxed=True, client="two")
    assert after_intent.recorded


def test_a_changed_call_keeps_what_the_agent_wrote_and_its_approval_counts_once() -> None:
    policy = OriginReason(origin="policy", ground=Ground("ask", "so"))
    target = OriginReason(origin="target", ground=Ground("who", "so"))
    shown = replace(a_question({"path": "/a", "text": "x"}), reasons=(policy,), opening=None)
    case = a_case(Escalate(Ground("ask", "so")))
    assert case.use_edit(shown) is None
    assert case.said_of_edit() == ()
    for reasons, quorums, counts in (
        ((policy,), (), True),
        ((policy, target), (), False),
        ((policy,), (Quorum(2),), False),
    ):
        case.judged = Judgement(decision=case.decision, reasons=reasons, quorums=quorums)
        case.approve(shown.id)
        case.edit(Approved(by=HUMAN, changed={"path": "/b"}, remember=0), shown)
        assert case.call.arguments == {"path": "/b", "text": "x"}
        assert case.said_of_edit() == (("Changed by a reviewer", "path"),)
        asked = replace(shown, id=EscalationId("second"), reasons=reasons)
        approval = case.use_edit(asked)
        assert (approval is not None) is counts
        if approval is not None:
            assert (approval.question, approval.remember, approval.changed) == (
                shown.id,
                None,
                None,
            )
        assert case.use_edit(asked) is None
    assert case.question is None
    assert case.allowed.changed == ("path",)
    record = case.record(None, elapsed=0.0, sandboxed=False)
    assert dict(record.context)["edited"] == {
        "by": "human",
        "escalationId": shown.id,
        "sha256": shown.fingerprint,
        "instead of": {"path": "/a"},
    }
    case.approve(EscalationId("second"))
    assert str(case.question) == "second"
    case.start_over()
    assert (case.edited, case.call.arguments) == (None, {})
