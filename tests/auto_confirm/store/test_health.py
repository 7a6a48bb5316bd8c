"""How sessions fare, and how long the queue of the others is."""

from datetime import timedelta

import pytest

from ironcurtain_proxy.auto_confirm.store.store import Store
from tests.auto_confirm.store.direct import open_task, pending_of_others, record_interaction
from tests.auto_confirm.store.specimens import auto_approved, ends, interaction, reviewed, task
from tests.fakes import FakeClock

SERIOUS = interaction(band="HIGH")
UNANSWERED = ends("rejected", "timeout", "nobody answered")


def health(store: Store, clock: FakeClock, session: str = "s1") -> str:
    return store.session_state(session, clock.now()).health


def ended(store: Store, *, well: int = 0, refused: int = 0, failed: int = 0) -> None:
    for _ in range(well):
        store.record_outcome(auto_approved(store), succeeded=True)
    for _ in range(failed):
        store.record_outcome(auto_approved(store), succeeded=False)
    for _ in range(refused):
        reviewed(store, end=ends("rejected"))


@pytest.mark.requirement("B-38")
def test_a_session_of_which_little_is_known_is_unknown(store: Store, clock: FakeClock) -> None:
    assert health(store, clock) == "unknown"
    ended(store, well=2)
    assert health(store, clock) == "unknown"
    assert health(store, clock, "another") == "unknown"


@pytest.mark.requirement("B-37")
def test_a_session_whose_calls_go_through_does_well(store: Store, clock: FakeClock) -> None:
    ended(store, well=3)
    assert health(store, clock) == "well"
    clock.seconds = timedelta(hours=2).total_seconds()
    assert health(store, clock) == "unknown"


@pytest.mark.requirement("B-36")
@pytest.mark.parametrize(
    ("well", "refused", "failed", "expected"),
    [(3, 2, 0, "well"), (2, 2, 0, "failing"), (2, 1, 1, "failing"), (0, 0, 3, "failing")],
)
def test_a_session_half_of_whose_calls_go_wrong_is_failing(
    store: Store, clock: FakeClock, well: int, refused: int, failed: int, expected: str
) -> None:
    ended(store, well=well, refused=refused, failed=failed)
    assert health(store, clock) == expected


def test_only_the_last_ten_calls_count(store: Store, clock: FakeClock) -> None:
    ended(store, failed=20)
    ended(store, well=10)
    assert health(store, clock) == "well"


def test_what_waited_before_the_proxy_was_started_again_waits_no_longer(
    store: Store, clock: FakeClock
) -> None:
    open_task(store, record_interaction(store, SERIOUS), task())
    clock.seconds = timedelta(minutes=11).total_seconds()
    assert health(store, clock) == "stuck"
    assert store.session_state("s1", clock.now(), clock.now()).health == "unknown"


@pytest.mark.requirement("B-35")
def test_a_call_that_waits_too_long_makes_a_session_stuck(store: Store, clock: FakeClock) -> None:
    ended(store, well=5)
    identifier = record_interaction(store, SERIOUS)
    open_task(store, identifier, task())
    clock.seconds = 600
    assert health(store, clock) == "well"
    clock.seconds = 601
    assert health(store, clock) == "stuck"
    assert health(store, clock, "another") == "unknown"
    assert store.end(identifier, ends())
    assert health(store, clock) == "well"


@pytest.mark.requirement("B-35")
def test_a_question_that_nobody_answered_makes_a_session_stuck_for_ten_minutes(
    store: Store, clock: FakeClock
) -> None:
    ended(store, well=5)
    reviewed(store, SERIOUS, UNANSWERED)
    assert health(store, clock) == "stuck"
    clock.seconds = 600
    assert health(store, clock) == "stuck"
    clock.seconds = 601
    assert health(store, clock) == "well"


@pytest.mark.requirement("B-47", "B-165")
def test_what_is_safe_does_not_keep_a_session_stuck(store: Store, clock: FakeClock) -> None:
    ended(store, well=5)
    reviewed(store, SERIOUS, UNANSWERED)
    for _ in range(20):
        clock.seconds += 60
        reviewed(store, end=UNANSWERED)
    assert health(store, clock) == "well"
    open_task(store, record_interaction(store, interaction()), task())
    clock.seconds += 700
    assert health(store, clock) == "well"


@pytest.mark.requirement("B-32")
def test_the_queue_is_what_waits_in_other_sessions(store: Store, clock: FakeClock) -> None:
    for session in ("me", "me", "a", "b"):
        record_interaction(store, interaction(session=session))
    held = record_interaction(store, interaction(session="a"))
    open_task(store, held, task())
    passed_on = record_interaction(store, interaction(session="a"))
    open_task(store, passed_on, task())
    store.record_escalation(passed_on, "x", "y", "late")
    auto_approved(store, interaction(session="a", status="auto_approved"))
    reviewed(store, interaction(session="b"))
    assert pending_of_others(store, "me") == 4
    assert pending_of_others(store, "a") == 3
    assert pending_of_others(store, "new") == 6
    clock.seconds = 3601
    assert pending_of_others(store, "me") == 0


def test_earlier_failures_are_those_of_the_session_in_the_last_hour(
    store: Store, clock: FakeClock
) -> None:
    ended(store, well=2, failed=3, refused=1)
    assert store.session_state("s1", clock.now()).earlier_failures == 3
    assert store.session_state("s2", clock.now()).earlier_failures == 0
    assert store.session_state("s1", clock.now() + timedelta(hours=2)).earlier_failures == 0
