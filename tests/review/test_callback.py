"""A function of the embedding program answers: only a clear approval is one."""

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.decision import HUMAN, TIMEOUT, Program
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling
from ironcurtain_proxy.review.terminal import CallbackReviewer
from tests.fakes import FakeClock
from tests.questions import ETC, a_question

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-32")]

APPROVED = Approved(by=Program("lead", "named"), note="ok")
DENIED = Declined(by=HUMAN, kind="denied")


async def ruling_for(answer: object, *, grantable: bool = True) -> Ruling:
    async def on_escalation(escalation: Escalation) -> object:
        return answer

    question = a_question(grantable=grantable)
    at_once = await CallbackReviewer(lambda _: answer, FakeClock()).ask(question)
    awaited = await CallbackReviewer(on_escalation, FakeClock()).ask(question)
    assert at_once == awaited
    return awaited


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(APPROVED, APPROVED, id="approved"),
        pytest.param(DENIED, DENIED, id="denied"),
        pytest.param({"decision": "approved"}, Approved(by=HUMAN), id="as in a response file"),
        pytest.param(
            {"decision": "approved", "whitelistSelection": 0},
            Approved(by=HUMAN, remember=0),
            id="to be remembered",
        ),
        pytest.param(Approved(remember=ETC), Approved(remember=ETC), id="a candidate"),
        pytest.param(Declined(), DENIED, id="declined, without a word"),
        pytest.param(
            {"decision": "denied", "whitelistSelection": 0}, DENIED, id="denied, in a mapping"
        ),
    ],
)
async def test_an_answer_is_taken_as_it_was_meant(answer: object, expected: Ruling) -> None:
    assert await ruling_for(answer) == expected


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="nothing"),
        pytest.param(True, id="true"),
        pytest.param("approved", id="a word"),
        pytest.param({}, id="an empty mapping"),
        pytest.param({"decision": "Approved"}, id="another spelling"),
        pytest.param({"decision": True}, id="a decision that is true"),
        pytest.param([{"decision": "approved"}], id="a list"),
        pytest.param(Approved(by=HUMAN, remember=1), id="remembers what was not offered"),
        pytest.param(Approved(by=HUMAN, remember=-1), id="remembers from the end"),
        pytest.param({"decision": "approved", "whitelistSelection": 1}, id="another place"),
        pytest.param({"decision": "approved", "whitelistSelection": True}, id="no number"),
        pytest.param(Approved(remember=True), id="remembers a truth, which is no place"),
        pytest.param(Approved(remember=0.0), id="remembers a fraction"),  # type: ignore[arg-type]  # untyped
        pytest.param(
            Approved(remember=replace(ETC, description="Allow everything")),
            id="remembers what it made up",
        ),
    ],
)
async def test_what_is_no_clear_approval_is_a_refusal(answer: object) -> None:
    ruling = await ruling_for(answer)
    assert isinstance(ruling, Declined)
    assert ruling.kind == "invalid"


async def test_a_function_that_raises_refuses_and_does_not_tell_why_in_full() -> None:
    def fails(escalation: Escalation) -> object:
        raise ValueError("secret")

    ruling = await CallbackReviewer(fails, FakeClock()).ask(a_question())
    assert ruling == Declined(by=HUMAN, kind="invalid", reason="on_escalation raised ValueError")


async def test_a_function_that_does_not_come_back_is_not_waited_for_past_the_deadline() -> None:
    expired = Declined(by=TIMEOUT, kind="expired")
    asked: list[str] = []

    async def waits(escalation: Escalation) -> None:
        asked.append(escalation.id)
        await anyio.sleep_forever()

    reviewer = CallbackReviewer(waits, FakeClock())
    assert await reviewer.ask(a_question(seconds=0.02)) == expired
    assert await reviewer.ask(a_question(seconds=0)) == expired
    assert len(asked) == 1


async def test_a_question_that_is_withdrawn_cancels_the_function() -> None:
    ended: list[bool] = []

    async def waits(escalation: Escalation) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(CallbackReviewer(waits, FakeClock()).ask, a_question())
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert ended == [True]
