"""Each question is asked once, and each approval used once."""

from collections.abc import Callable
from typing import Literal

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.decision import HUMAN, KERNEL
from ironcurtain_proxy.model.escalation import (
    AlreadyUsed,
    Declined,
    Escalation,
    Held,
    OriginReason,
    Ruling,
    Superseded,
    Unreachable,
)
from ironcurtain_proxy.model.operation import TASKS, VERSIONS, Caller
from ironcurtain_proxy.model.request import ParsedCommand
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.review import open_questions as desk_module
from ironcurtain_proxy.review.open_questions import OpenQuestions
from ironcurtain_proxy.review.terminal import Channel, Panel
from tests.program import until
from tests.review.open_questions_fixture import YES, Person, at_work, question, state_of

pytestmark = pytest.mark.anyio

NO = Declined(by=HUMAN, kind="denied")


@pytest.mark.parametrize("ruling", [YES, NO, Unreachable()])
async def test_a_ruling_comes_back_as_it_was_given(ruling: Ruling) -> None:
    person = Person()
    person.answers[question().id] = ruling
    async with at_work(person) as (desk, _):
        assert await desk.ask(question()) == ruling
        assert desk.open() == ()


async def test_an_approval_is_used_once_and_the_next_identical_call_is_asked_about() -> None:
    person = Person()
    person.answers = {question(1).id: YES, question(2).id: NO}
    async with at_work(person) as (desk, _):
        assert await desk.ask(question(1)) == YES
        assert await desk.ask(question(2)) == NO
        assert len(person.asked) == 2


async def test_two_identical_calls_at_once_ask_once_and_only_one_runs() -> None:
    person = Person()
    rulings: list[Ruling | Held | AlreadyUsed | Superseded] = []

    async def call(desk: OpenQuestions, number: int) -> None:
        rulings.append(await desk.ask(question(number)))

    async with at_work(person) as (desk, _):
        async with anyio.create_task_group() as calls:
            calls.start_soon(call, desk, 1)
            calls.start_soon(call, desk, 2)
            await person.until_asked(1)
            (first,) = person.asked
            await anyio.wait_all_tasks_blocked()
            for number in (1, 2):
                person.answer(question(number), YES)
        assert person.asked == [first]
        assert sorted(type(ruling).__name__ for ruling in rulings) == ["AlreadyUsed", "Approved"]


async def test_a_held_call_joins_its_question_and_runs_once_when_it_was_approved() -> None:
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        assert await desk.ask(question(1)) == Held(question(1).id)
        assert await desk.ask(question(2)) == Held(question(1).id)
        await person.until_asked(1)
        assert person.asked == [question(1).id]
        person.answer(question(1), YES)
        await until(lambda: state_of(desk, question(1).id) == "approved")
        assert await desk.ask(question(3)) == replace(YES, question=question(1).id)
        assert state_of(desk, question(1).id) is None
        assert await desk.ask(question(4)) == Held(question(4).id)


async def test_a_held_call_stays_approved_though_another_result_names_its_target() -> None:
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        one, later = [
            replace(question(number), context=(("Named by", said),))
            for number, said in ((1, "only in a/b, read a minute ago"), (2, "first in a/b"))
        ]
        await desk.ask(one)
        person.answer(one, YES)
        await until(lambda: state_of(desk, one.id) == "approved")
        assert await desk.ask(later) == replace(YES, question=one.id)


async def test_an_approval_that_nobody_comes_back_for_lapses() -> None:
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        await desk.ask(question(1))
        person.answer(question(1), YES)
        await until(lambda: state_of(desk, question(1).id) == "approved")
        clock.seconds += 301
        assert state_of(desk, question(1).id) is None
        assert await desk.ask(question(2)) == Held(question(2).id)


@pytest.mark.parametrize(("call", "policy"), [("other", "p"), ("same", "another version")])
async def test_an_approval_is_for_the_same_call_under_the_same_policy(
    call: str, policy: str
) -> None:
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        await desk.ask(question(1))
        person.answer(question(1), YES)
        await until(lambda: state_of(desk, question(1).id) == "approved")
        assert isinstance(await desk.ask(question(2, call, policy)), Held)


async def test_a_cancelled_call_withdraws_its_question() -> None:
    person = Person()
    async with at_work(person) as (desk, _):
        async with anyio.create_task_group() as calls:
            calls.start_soon(desk.ask, question(1))
            await person.until_asked(1)
            calls.cancel_scope.cancel()
        await person.until_withdrawn(1)
        assert desk.open() == ()


async def test_a_question_that_others_wait_for_is_not_withdrawn() -> None:
    person = Person()
    rulings: list[Ruling | Held | AlreadyUsed | Superseded] = []

    async def patient(desk: OpenQuestions) -> None:
        rulings.append(await desk.ask(question(2)))

    async with at_work(person) as (desk, _), anyio.create_task_group() as calls:
        calls.start_soon(patient, desk)
        await person.until_asked(1)
        async with anyio.create_task_group() as impatient:
            impatient.start_soon(desk.ask, question(1))
            await anyio.lowlevel.checkpoint()
            impatient.cancel_scope.cancel()
        person.answer(question(2), YES)
    assert rulings == [YES]
    assert person.withdrawn == []


async def test_a_reviewer_that_breaks_refuses_that_call_and_no_other() -> None:
    class Broken:
        async def ask(self, escalation: Escalation) -> Ruling:
            raise RuntimeError("defect")

    async with at_work(Broken()) as (desk, _):
        for number in (1, 2):
            ruling = await desk.ask(question(number))
            assert isinstance(ruling, Declined)
            assert ruling.kind == "invalid"


async def test_more_questions_than_anyone_can_answer_are_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk_module, "MAX_OPEN", 2)
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        for number in (1, 2):
            await desk.ask(question(number, call=str(number)))
        refused = await desk.ask(question(3, call="3"))
        assert isinstance(refused, Declined)
        assert (refused.by, refused.kind) == (KERNEL, "limit")
        await person.until_asked(2)
        assert len(person.asked) == 2


@pytest.mark.parametrize("waits", [True, False])
async def test_only_a_client_that_has_a_task_waits_longer_than_its_requests(
    monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    monkeypatch.setattr(desk_module, "_WITHOUT_HANDSHAKE", 0.01)
    able: dict[str, Json] = {"extensions": {TASKS: {}}} if waits else {}
    call = replace(question(1), caller=Caller(version=VERSIONS[0], capabilities=able))
    person = Person()
    async with at_work(person) as (desk, clock), anyio.create_task_group() as tasks:
        clock.tick = 0.02

        async def answer() -> None:
            await person.until_asked(1)
            if waits:
                person.answer(call, YES)

        tasks.start_soon(answer)
        assert await desk.ask(call) == (YES if waits else Held(call.id))


async def test_while_a_call_waits_there_are_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "PULSE", 0.001)
    person = Person()
    signs: list[float] = []

    async def sign(seconds: float) -> None:
        signs.append(seconds)
        if len(signs) == 3:
            person.answer(question(1), YES)

    async with at_work(person) as (desk, _):
        assert await desk.ask(question(1), sign) == YES
    assert len(signs) == 3


@pytest.mark.requirement("A-12", "A-55")
@pytest.mark.requirement("E-38")
async def test_without_anyone_to_ask_the_auto_approver_is_not_asked_either() -> None:
    model, person = Person(), Person()
    model.answers[question().id] = YES
    nobody = Panel([Channel(person, lambda: False)], first=model)
    assert await nobody.ask(question()) == Unreachable()
    assert model.asked == []


@pytest.mark.requirement("A-7", "A-9")
async def test_the_auto_approver_is_asked_first_and_a_person_only_if_it_passes() -> None:
    model, person = Person(), Person()
    model.answers[question(1).id] = YES
    model.answers[question(2).id] = Unreachable()
    person.answers[question(2).id] = NO
    panel = Panel([Channel(person, lambda: True)], first=model)
    assert await panel.ask(question(1)) == YES
    assert person.asked == []
    assert await panel.ask(question(2)) == NO
    assert model.denied == [question(2).fingerprint]


@pytest.mark.requirement("E-38")
async def test_a_way_that_leads_to_nobody_is_followed_by_the_next() -> None:
    away, there = Person(), Person()
    away.answers[question().id] = Unreachable()
    there.answers[question().id] = YES
    panel = Panel([Channel(away, lambda: True), Channel(there, lambda: True)])
    assert await panel.ask(question()) == YES


CHANGES: dict[str, Callable[[Escalation], Escalation]] = {
    "definition": lambda asked: replace(asked, definition="other"),
    "path": lambda asked: replace(
        asked, request=replace(asked.request, repository=RealPath.from_text("/srv/other"))
    ),
    "branch": lambda asked: replace(asked, context=(("Current branch", "main"),)),
    "reasons": lambda asked: replace(
        asked, reasons=(OriginReason(origin="capability", ground=asked.ground),)
    ),
    "command": lambda asked: replace(asked, command=ParsedCommand(unreadable="x")),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.requirement("X-8", "X-11")
async def test_an_answer_is_not_used_for_the_same_arguments_when_they_lead_elsewhere(
    what: str,
) -> None:
    """A link or a remote may have changed while the call was held."""
    person = Person()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        clock.tick = 0.02
        assert await desk.ask(question(1)) == Held(question(1).id)
        await person.until_asked(1)
        person.answer(question(1), YES)
        await until(lambda: state_of(desk, question(1).id) == "approved")
        assert await desk.ask(CHANGES[what](question(2))) == Held(question(2).id)
        await person.until_asked(2)
        assert person.asked == [question(1).id, question(2).id]


async def test_a_question_of_another_policy_is_withdrawn_and_its_calls_are_told() -> None:
    person = Person()
    rulings: list[Ruling | Held | AlreadyUsed | Superseded] = []

    async def call(desk: OpenQuestions, number: int, policy: str) -> None:
        rulings.append(await desk.ask(question(number, f"call {number}", policy)))

    async with at_work(person) as (desk, _):
        async with anyio.create_task_group() as calls:
            calls.start_soon(call, desk, 1, "old")
            await person.until_asked(1)
            assert desk.supersede("new") == 1
        assert rulings == [Superseded()]
        assert desk.open() == ()
        assert person.withdrawn == [question(1).id]
        assert desk.supersede("new") == 0


@pytest.mark.parametrize("kind", ["denied", "expired"])
async def test_the_refusal_of_a_held_call_that_nobody_waits_for_is_told_once(
    kind: Literal["denied", "expired"],
) -> None:
    person = Person()
    told: list[tuple[Escalation, Declined]] = []

    async def tell(escalation: Escalation, ruling: Declined) -> None:
        told.append((escalation, ruling))

    refusal = Declined(kind=kind)
    async with at_work(person, hold_after=0.01) as (desk, clock):
        desk.on_refused_later = tell
        clock.tick = 0.02
        assert await desk.ask(question(1)) == Held(question(1).id)
        person.answer(question(1), refusal)
        await until(lambda: told)
        assert await desk.ask(question(2)) == replace(refusal, question=question(1).id)
    assert told == [(question(1), refusal)]


async def test_the_refusal_of_a_call_that_waits_or_of_a_withdrawn_question_is_not_told() -> None:
    person = Person()
    told: list[Escalation] = []

    async def tell(escalation: Escalation, _ruling: Declined) -> None:
        told.append(escalation)

    async with at_work(person) as (desk, _):
        desk.on_refused_later = tell
        person.answer(question(1), Declined())
        assert await desk.ask(question(1)) == Declined()
    async with at_work(person, hold_after=0.01) as (desk, clock):
        desk.on_refused_later = tell
        clock.tick = 0.02
        assert await desk.ask(question(2)) == Held(question(2).id)
        assert desk.supersede("new") == 1
        await person.until_withdrawn(1)
        await anyio.wait_all_tasks_blocked()
    assert told == []
