"""Somebody sets the machine's clock while a question is open or a grant is remembered."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.mailbox.mailboxes import MailboxReader, utc_now
from ironcurtain_proxy.mailbox.messages import response_name
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.model.escalation import Approved, Escalation, Ruling
from ironcurtain_proxy.model.values import BootMoment, boot_moment
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.steady_clock import boot_id, in_this_boot, seconds_left, seconds_since_boot
from tests.fakes import FakeClock
from tests.mailbox.mailbox_fixture import APPROVED, an_id
from tests.program import until
from tests.questions import a_question

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


class Set:
    """The machine's clocks, of which one is set."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)
        self.elapsed = 1000.0
        self.clock = SystemClock(
            lambda: self.moment, lambda: self.elapsed, (self.moment, self.elapsed)
        )

    def passes(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
        self.elapsed += seconds


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_clock_that_is_set_moves_no_deadline(jump: timedelta) -> None:
    machine = Set()
    deadline = machine.clock.steady() + timedelta(seconds=10)
    machine.moment += jump
    machine.passes(9)
    assert machine.clock.steady() < deadline
    machine.passes(2)
    assert machine.clock.steady() > deadline
    assert machine.clock.now() == machine.moment


def test_two_clocks_of_a_process_agree() -> None:
    one, other = SystemClock(), SystemClock()
    assert one.steady() <= other.steady() <= one.steady()


@pytest.mark.parametrize("set_by", [3600.0, -3600.0])
async def test_an_answer_in_time_counts_although_the_clock_was_set(
    tmp_path: Path, set_by: float
) -> None:
    clock, rulings = FakeClock(), list[Ruling]()
    mailbox = Mailbox(MailboxSettings(directory=tmp_path, assume_listener=True), clock)
    question: Escalation = a_question(seconds=60, identifier=an_id())
    question = replace(question, created=clock.steady(), deadline=clock.steady() + HOUR / 60)

    async def ask() -> None:
        rulings.append(await mailbox.ask(question))

    async with anyio.create_task_group() as tasks:
        await tasks.start(mailbox.run)
        tasks.start_soon(ask)
        await until(lambda: any(tmp_path.glob("request-*")))
        clock.set_by = set_by
        # Whoever reviews sees it as open: the count of this boot says so.
        reader = MailboxReader(tmp_path)
        (seen,) = reader.pending(utc_now() + timedelta(seconds=set_by))
        reader.close()
        assert seen.request.id == question.id
        (tmp_path / response_name(question.id)).write_bytes(APPROVED)
        await until(lambda: bool(rulings))
        tasks.cancel_scope.cancel()
    assert isinstance(rulings[0], Approved)


def test_a_moment_of_another_boot_says_nothing() -> None:
    assert seconds_left(BootMoment("another", seconds_since_boot() + 10)) is None
    assert seconds_left(BootMoment("", seconds_since_boot() + 10)) is None


def test_a_moment_of_this_boot_is_read_as_it_was_written() -> None:
    if not boot_id():
        pytest.skip("this system does not say which boot it is")
    clock = SystemClock()
    moment = in_this_boot(clock.steady() + HOUR, clock)
    assert boot_moment(moment.as_json()) == moment
    left = seconds_left(moment)
    assert left is not None
    assert 0 < left <= 3600.1


@pytest.mark.parametrize(
    "value", [None, [], {}, {"boot": 1, "seconds": 2}, {"boot": "x", "seconds": True}]
)
def test_what_is_no_moment_is_none(value: object) -> None:
    assert boot_moment(value) is None
