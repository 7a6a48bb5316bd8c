"""A process that reviews and does not play by the rules."""

import logging
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.briefing import REVIEW_BY_REQUESTER, PassedOn
from ironcurtain_proxy.auto_confirm.reviewers.process import MAX_WARNINGS, ProcessReviewer
from ironcurtain_proxy.model.decision import TIMEOUT, Program
from ironcurtain_proxy.model.escalation import Approved, Declined, Ruling
from tests.auto_confirm.reviewers.managers.attacking import ATTACKS
from tests.auto_confirm.reviewers.reviewer_processes import Launcher, manager, reviewing
from tests.fakes import FakeClock
from tests.mailbox.mailbox_fixture import escalation
from tests.questions import a_question

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("X-8")
async def test_what_is_not_an_answer_changes_nothing_but_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    launcher = Launcher()
    properly = Declined(by=Program("architect_manager", "process"), kind="denied", note="properly")
    async with reviewing(manager("deciding", "approve", name="other"), launcher) as other:
        await other.ask(escalation())
        others_token = launcher.starts[0].secrets[0]
        for attack in sorted(ATTACKS):
            caplog.clear()
            async with reviewing(manager("attacking", attack, others_token)) as reviewer:
                rulings = [await reviewer.ask(escalation()) for _ in range(2)]
            assert rulings == [properly, properly], attack
            warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
            assert any("does not count" in record.getMessage() for record in warnings), attack
            assert others_token not in caplog.text, attack


@pytest.mark.requirement("X-8")
async def test_a_flood_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with reviewing(manager("attacking", "flood")) as reviewer:
        assert isinstance(await reviewer.ask(escalation()), Declined)
    lines = [record for record in caplog.records if "does not count" in record.getMessage()]
    assert len(lines) == MAX_WARNINGS


@pytest.mark.requirement("X-8", "X-16")
async def test_an_answer_is_good_for_one_question_once(caplog: pytest.LogCaptureFixture) -> None:
    async with reviewing(manager("replaying")) as reviewer:
        first = await reviewer.ask(escalation())
        second = await reviewer.ask(replace(escalation(), fingerprint="e" * 64))
    assert isinstance(first, Approved)
    assert isinstance(second, Declined)
    reasons = Counter(record.getMessage().partition(": ")[2] for record in caplog.records)
    assert reasons["it answers nothing that is open"] == 2
    assert reasons["it answers something other than what was asked"] == 1


@pytest.mark.requirement("X-8")
async def test_an_answer_after_the_deadline_is_none(caplog: pytest.LogCaptureFixture) -> None:
    async with reviewing(manager("tardy")) as reviewer:
        silent = escalation(tool="patience", seconds=0.5)
        assert await reviewer.ask(silent) == Declined(by=TIMEOUT, kind="expired")
        assert isinstance(await reviewer.ask(escalation()), Approved)
    assert "it answers nothing that is open" in caplog.text


class Sleeping(FakeClock):
    """An hour passes between two looks at it."""

    def now(self) -> datetime:
        self.seconds += 3600
        return super().now() - timedelta(hours=1)


@pytest.mark.requirement("X-8")
async def test_an_answer_that_came_while_the_machine_slept_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reviewing(manager("deciding", "approve"), clock=Sleeping()) as reviewer:
        ruling = await reviewer.ask(a_question(seconds=1.5))
    assert ruling == Declined(by=TIMEOUT, kind="expired")
    assert "it is late" in caplog.text


@pytest.mark.requirement("X-7")
@pytest.mark.parametrize("name", ["session-1", "Session-1", " session-1 ", "\uff53ession-1"])
async def test_who_calls_itself_by_the_requesters_name_reviews_nothing(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reviewing(manager("calling_itself", name)) as reviewer:
        assert await reviewer.ask(escalation()) == PassedOn(REVIEW_BY_REQUESTER)
    assert REVIEW_BY_REQUESTER in caplog.text


async def test_so_many_are_asked_at_once_and_all_are_answered(tmp_path: Path) -> None:
    kept = tmp_path / "ids"
    spec = replace(manager("deciding", "approve", kept), at_once=3)
    asked = [escalation() for _ in range(40)]
    rulings: list[Ruling] = []

    async def ask(reviewer: ProcessReviewer, number: int) -> None:
        rulings.append(await reviewer.ask(asked[number]))

    async with reviewing(spec) as reviewer, anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(ask, reviewer, number)
    assert [type(ruling) for ruling in rulings] == [Approved] * 40
    assert sorted(kept.read_text().split()) == sorted(one.id for one in asked)
