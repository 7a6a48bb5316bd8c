"""One watchdog for a question: the target, the fallback, nobody."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import anyio
import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.briefing import REVIEW_BY_REQUESTER, PassedOn
from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.auto_confirm.notice_channels import FileChannel
from ironcurtain_proxy.auto_confirm.notifier import EngineNotice
from ironcurtain_proxy.auto_confirm.reviewer_chain import SILENCE, OnStep, ReviewerChain, Seat
from ironcurtain_proxy.model.decision import HUMAN, KERNEL, TIMEOUT, Program
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling, Unreachable
from tests.auto_confirm.listeners import HANGING, notifying
from tests.fakes import FakeClock
from tests.program import until
from tests.questions import a_question

pytestmark = pytest.mark.anyio

DECISION = EngineDecision(
    action="escalate",
    check="risk",
    reason="High risk",
    target="architect_manager",
    fallback="claude_code_high_level",
    priority=9,
    operation="delete",
    risk=80,
    band="HIGH",
    confidence=50,
    context_score=0,
    factors=(("HIGH", 80),),
    confidence_factors=(),
)
EXPIRED = Declined(by=TIMEOUT, kind="expired")
BY_TARGET = Approved(by=Program("architect_manager", "named"))
BY_FALLBACK = Approved(by=Program("claude_code_high_level", "named"))
DENIED = Declined(by=Program("architect_manager", "named"), kind="denied")


@dataclass
class Scripted:
    """A reviewer in memory."""

    ruling: Ruling | Exception | None
    """None: it never answers."""
    asked: list[tuple[Escalation, EngineDecision]] = field(default_factory=list)
    withdrawn: int = 0
    meanwhile: Callable[[], None] = lambda: None

    async def ask(self, question: Escalation, briefing: EngineDecision) -> Ruling:
        self.asked.append((question, briefing))
        await anyio.lowlevel.checkpoint()
        self.meanwhile()
        if self.ruling is None:
            try:
                await anyio.sleep_forever()
            finally:
                self.withdrawn += 1
        if isinstance(self.ruling, Exception):
            raise self.ruling
        assert self.ruling is not None
        return self.ruling


@dataclass
class Table:
    """A chain of two over a clock that stands still."""

    target: Scripted
    fallback: Scripted = field(default_factory=lambda: Scripted(BY_FALLBACK))
    steps: list[tuple[str, str, str]] = field(default_factory=list)
    told: list[EngineNotice] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.seats = {
            "architect_manager": Seat(ask=self.target.ask, session="architect-1"),
            "claude_code_high_level": Seat(ask=self.fallback.ask, session="high-1"),
        }

    async def note(self, _: Escalation, source: str, target: str, reason: str) -> None:
        self.steps.append((source, target, reason))

    async def ask(
        self, question: Escalation | None = None, decision: EngineDecision = DECISION
    ) -> Ruling:
        chain = ReviewerChain(
            seats=self.seats, clock=self.clock, on_step=self.note, notify=self.told.append
        )
        return await chain.ask(question or a_question(seconds=600), decision)


ANSWERS = {"an approval": BY_TARGET, "a denial": DENIED}
NO_ANSWERS: dict[str, tuple[Ruling | Exception, str]] = {
    "silence": (EXPIRED, SILENCE),
    "nobody there": (Unreachable(), "it could not be asked"),
    "its death": (PassedOn("its process has ended"), "its process has ended"),
    "a defect": (ValueError("a secret"), "it failed"),
    "the requester's approval": (Approved(by=Program("S", "named")), REVIEW_BY_REQUESTER),
}


@pytest.mark.requirement("B-56")
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_the_first_answer_that_counts_is_the_answer(answer: Ruling) -> None:
    table = Table(Scripted(answer))
    assert await table.ask() == answer
    assert not table.fallback.asked
    assert not table.steps


@pytest.mark.requirement("B-60", "B-169")
@pytest.mark.parametrize(("found", "reason"), NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_without_an_answer_the_next_one_is_asked_and_that_is_recorded(
    found: Ruling | Exception, reason: str
) -> None:
    table = Table(Scripted(found))
    assert await table.ask() == BY_FALLBACK
    assert table.steps == [("architect_manager", "claude_code_high_level", reason)]


@pytest.mark.requirement("B-60", "B-172")
async def test_when_nobody_answers_the_question_has_expired() -> None:
    table = Table(Scripted(EXPIRED), Scripted(Unreachable()))
    assert await table.ask() == EXPIRED
    assert table.steps == [("architect_manager", "claude_code_high_level", SILENCE)]


async def test_when_nobody_could_be_asked_the_caller_may_know_another_way() -> None:
    table = Table(Scripted(Unreachable()), Scripted(PassedOn("its process has ended")))
    assert await table.ask() == Unreachable()


@pytest.mark.requirement("B-55", "B-101")
async def test_each_reviewer_has_five_minutes() -> None:
    table = Table(Scripted(EXPIRED), Scripted(EXPIRED))
    table.target.meanwhile = lambda: setattr(table.clock, "seconds", 300.0)
    await table.ask()
    [(first, _)], [(second, _)] = table.target.asked, table.fallback.asked
    start = FakeClock().now()
    assert first.deadline == start + timedelta(seconds=300)
    assert second.deadline == start + timedelta(seconds=600)


async def test_where_there_is_less_time_everybody_has_a_share() -> None:
    table = Table(Scripted(Unreachable()), Scripted(EXPIRED))
    question = a_question(seconds=300)
    await table.ask(question)
    [(first, _)], [(second, _)] = table.target.asked, table.fallback.asked
    assert first.deadline - question.created == timedelta(seconds=150)
    assert second.deadline == question.deadline


async def test_a_reviewer_that_keeps_no_deadline_is_stopped() -> None:
    table = Table(Scripted(None))
    assert await table.ask(a_question(seconds=0.2)) == BY_FALLBACK
    assert table.target.withdrawn == 1


@pytest.mark.requirement("X-8")
async def test_an_approval_from_after_the_deadline_is_none() -> None:
    table = Table(Scripted(BY_TARGET))
    table.target.meanwhile = lambda: setattr(table.clock, "seconds", 301.0)
    assert await table.ask() == BY_FALLBACK
    assert table.steps[0][2] == SILENCE


async def test_a_question_that_is_withdrawn_is_withdrawn_from_its_reviewer() -> None:
    table = Table(Scripted(None))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(table.ask)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert (table.target.withdrawn, table.fallback.asked, table.steps) == (1, [], [])


@pytest.mark.requirement("X-7")
@pytest.mark.parametrize("requester", ["architect_manager", "architect-1", "Architect-1 "])
async def test_whoever_asks_is_not_asked(requester: str) -> None:
    table = Table(Scripted(BY_TARGET))
    assert await table.ask(replace(a_question(seconds=600), session=requester)) == BY_FALLBACK
    assert not table.target.asked
    assert table.steps == [("architect_manager", "claude_code_high_level", REVIEW_BY_REQUESTER)]


@pytest.mark.requirement("X-7")
async def test_whoever_asks_is_not_asked_as_the_fallback_either() -> None:
    table = Table(Scripted(Unreachable()))
    assert await table.ask(replace(a_question(), session="high-1")) == Unreachable()
    assert not table.fallback.asked


async def test_who_is_not_there_is_not_waited_for() -> None:
    table = Table(Scripted(None))
    table.seats["architect_manager"] = replace(
        table.seats["architect_manager"], is_reachable=lambda: False
    )
    assert await table.ask() == BY_FALLBACK
    assert not table.target.asked


async def test_a_denial_by_who_may_not_deny_goes_to_the_next() -> None:
    table = Table(Scripted(DENIED))
    table.seats["architect_manager"] = replace(table.seats["architect_manager"], may_deny=False)
    assert await table.ask() == BY_FALLBACK
    assert table.steps[0][2] == "it may not deny"


@pytest.mark.requirement("X-8")
async def test_an_answer_that_could_not_be_accepted_refuses_the_call() -> None:
    refused = Declined(by=KERNEL, kind="invalid", reason="the response is not JSON")
    assert await Table(Scripted(refused)).ask() == refused


async def test_a_person_stands_in_for_a_name_without_a_reviewer_and_is_asked_once() -> None:
    table, person = Table(Scripted(EXPIRED)), Scripted(EXPIRED)
    table.seats = {"human": Seat(ask=person.ask)}
    assert await table.ask() == EXPIRED
    assert len(person.asked) == 1
    table.seats = {}
    assert await table.ask() == Unreachable()


async def test_a_person_is_not_kept_from_reviewing_by_a_sessions_name() -> None:
    table, person = Table(Scripted(EXPIRED)), Scripted(Approved(by=HUMAN))
    table.seats = {"human": Seat(ask=person.ask)}
    question = replace(a_question(), session="architect_manager")
    assert await table.ask(question) == Approved(by=HUMAN)


async def test_a_step_that_cannot_be_written_stops_nobody() -> None:
    async def failing(*_: object) -> None:
        raise OSError("no space left on device")

    on_step: OnStep = failing
    table = Table(Scripted(EXPIRED))
    chain = ReviewerChain(seats=table.seats, clock=table.clock, on_step=on_step)
    assert await chain.ask(a_question(), DECISION) == BY_FALLBACK


@pytest.mark.requirement("B-57", "B-67", "B-103")
async def test_whoever_is_asked_is_told_of_it() -> None:
    table = Table(Scripted(EXPIRED))
    await table.ask(decision=replace(DECISION, action="held", alert=True, risk=95, priority=10))
    keys = ("target", "priority", "operation")
    assert [tuple(one.fields[key] for key in keys) for one in table.told] == [
        ("architect_manager", 10, "delete"),
        ("claude_code_high_level", 10, "delete"),
    ]


@pytest.mark.requirement("B-67", "B-103")
async def test_all_who_take_part_hear_of_it_and_nobody_waits_until_they_have(
    tmp_path: Path,
) -> None:
    """Whoever asks gets the ruling, the silent one is called off, both reviewers are notified."""
    file = FileChannel(path=tmp_path / "notices")
    async with notifying(file, HANGING) as notifier:
        table = Table(Scripted(None))
        chain = ReviewerChain(seats=table.seats, clock=table.clock, notify=notifier.notify)
        assert await chain.ask(a_question(seconds=0.2), DECISION) == BY_FALLBACK
        assert table.target.withdrawn == 1
        await until(lambda: notifier.delivered == 2)
        assert (notifier.failed, notifier.dropped) == (0, 0)
    told = [orjson.loads(line) for line in file.path.read_bytes().splitlines()]
    assert {(one["type"], one["target"]) for one in told} == {
        ("permission_escalation", "architect_manager"),
        ("permission_escalation", "claude_code_high_level"),
    }


@pytest.mark.requirement("B-53")
async def test_a_reviewer_is_told_what_the_engine_found() -> None:
    table = Table(Scripted(BY_TARGET))
    await table.ask()
    assert [decision for _, decision in table.target.asked] == [DECISION]


def test_a_chain_is_reachable_while_somebody_is() -> None:
    table = Table(Scripted(BY_TARGET))
    chain = ReviewerChain(seats=table.seats, clock=table.clock)
    assert chain.is_reachable()
    gone = {name: replace(seat, is_reachable=lambda: False) for name, seat in table.seats.items()}
    assert not ReviewerChain(seats=gone, clock=table.clock).is_reachable()
