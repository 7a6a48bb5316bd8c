"""The success metrics of the document."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.auto_confirm.engine.interaction import RiskBand
from ironcurtain_proxy.auto_confirm.store.metrics import (
    Distribution,
    Metrics,
    Ratio,
    as_prometheus,
    compute,
    rank,
)
from ironcurtain_proxy.auto_confirm.store.rows import Status
from ironcurtain_proxy.auto_confirm.store.store import Store
from tests.auto_confirm.store.direct import open_task, record_interaction
from tests.auto_confirm.store.specimens import (
    approval,
    auto_approved,
    ends,
    interaction,
    reviewed,
    task,
)
from tests.fakes import FakeClock


def metrics_of(store: Store, clock: FakeClock) -> Metrics:
    return compute(store, clock.now())


def test_of_nothing_there_is_nothing(store: Store, clock: FakeClock) -> None:
    metrics = metrics_of(store, clock)
    assert metrics.interactions == metrics.manual_interventions == metrics.stuck_sessions == 0
    assert metrics.safe_auto_approved == Ratio(0, 0)
    assert metrics.safe_auto_approved.value is None
    assert metrics.decision_ms == metrics.response_seconds == Distribution()


@pytest.mark.requirement("B-173", "B-167")
def test_the_rate_of_safe_operations_approved_without_a_reviewer(
    store: Store, clock: FakeClock
) -> None:
    bands: tuple[RiskBand, ...] = ("SAFE", "LOW", "LOW")
    for band in bands:
        auto_approved(store, interaction(status="auto_approved", band=band))
    auto_approved(store, interaction(status="auto_approved", band="MEDIUM"))
    reviewed(store, interaction(band="LOW"))
    reviewed(store, interaction(band="HIGH"))
    assert metrics_of(store, clock).safe_auto_approved == Ratio(3, 4)


@pytest.mark.requirement("X-15")
def test_only_decisions_to_approve_count_as_approvals(store: Store, clock: FakeClock) -> None:
    statuses: tuple[Status, ...] = ("auto_approved", "approved", "pending")
    for status in statuses:
        record_interaction(store, interaction(status=status))
    reviewed(store, end=ends("rejected", "timeout"))
    reviewed(store, end=ends("rejected", "human"))
    metrics = metrics_of(store, clock)
    assert metrics.auto_approved.part == metrics.safe_auto_approved.part == 0
    assert not any(word == "approved" for word, _ in metrics.decisions)
    auto_approved(store)
    metrics = metrics_of(store, clock)
    assert metrics.auto_approved == Ratio(1, 6)
    assert metrics.decisions["approved", "engine"] == 1
    assert 'ironcurtain_decisions{decision="approved",decided_by="engine"} 1\n' in (
        as_prometheus(metrics)
    )


@pytest.mark.requirement("B-174")
def test_the_time_to_decide_is_spread_by_nearest_rank(store: Store, clock: FakeClock) -> None:
    for milliseconds in range(1, 201):
        record_interaction(store, interaction(decision_ms=float(milliseconds)))
    record_interaction(store, interaction())
    found = metrics_of(store, clock).decision_ms
    assert (found.count, found.p50, found.p99) == (200, 100.0, 198.0)
    assert found.within_target == 99


@given(st.integers(1, 2000), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_percentile_has_its_share_at_or_below_it_and_no_smaller_value_has(
    count: int, share: float
) -> None:
    place = rank(share, count)
    assert 0 <= place < count
    assert (place + 1) / count >= share
    assert place / count < share


@pytest.mark.requirement("B-175", "B-165")
def test_decisions_of_people_are_manual_interventions(store: Store, clock: FakeClock) -> None:
    reviewed(store, end=ends("approved", "human"))
    reviewed(store, end=ends("rejected", "human"))
    reviewed(store, end=ends("approved", "reviewer:manager"))
    auto_approved(store)
    assert metrics_of(store, clock).manual_interventions == 2


@pytest.mark.requirement("B-176")
def test_the_share_of_high_risk_that_went_to_a_reviewer(store: Store, clock: FakeClock) -> None:
    reviewed(store, interaction(band="HIGH"))
    reviewed(store, interaction(band="CRITICAL"), ends("rejected"))
    reviewed(store, interaction(band="LOW"))
    assert metrics_of(store, clock).high_risk_escalated == Ratio(2, 2)
    auto_approved(store, interaction(band="HIGH", status="auto_approved"))
    assert metrics_of(store, clock).high_risk_escalated == Ratio(2, 3)


@pytest.mark.requirement("B-177")
def test_response_times_are_those_of_reviewers(store: Store, clock: FakeClock) -> None:
    for seconds in (10, 30, 299, 300):
        identifier = record_interaction(store, interaction())
        open_task(store, identifier, task())
        clock.seconds += seconds
        store.end(identifier, ends())
    reviewed(store, end=ends("rejected", "timeout"))
    found = metrics_of(store, clock).response_seconds
    assert (found.count, found.p50, found.p99) == (4, 30.0, 300.0)
    assert found.within_target == 3


@pytest.mark.requirement("B-178", "B-4")
def test_a_session_with_calls_that_should_be_decided_is_stuck(
    store: Store, clock: FakeClock
) -> None:
    for session in ("a", "a", "b"):
        identifier = record_interaction(store, interaction(session=session))
        open_task(store, identifier, task())
    reviewed(store, interaction(session="c"))
    assert metrics_of(store, clock).stuck_sessions == 0
    clock.seconds = 601
    assert metrics_of(store, clock).stuck_sessions == 2


@pytest.mark.requirement("B-179", "B-168")
def test_the_trail_is_complete_where_every_interaction_has_a_decision(
    store: Store, clock: FakeClock
) -> None:
    auto_approved(store)
    reviewed(store)
    assert metrics_of(store, clock).audited == Ratio(2, 2)
    record_interaction(store, interaction())
    assert metrics_of(store, clock).audited == Ratio(2, 3)


@pytest.mark.requirement("B-11")
def test_the_shares_of_approved_and_escalated(store: Store, clock: FakeClock) -> None:
    for _ in range(3):
        auto_approved(store)
    identifier = record_interaction(store, interaction())
    open_task(store, identifier, task())
    store.record_escalation(identifier, "a", "b", "late")
    open_task(store, identifier, task("b"))
    metrics = metrics_of(store, clock)
    assert metrics.auto_approved == Ratio(3, 4)
    assert metrics.escalated == Ratio(1, 4)
    assert metrics.passed_on == 1


def test_metrics_can_begin_at_a_time(store: Store, clock: FakeClock) -> None:
    reviewed(store, interaction(band="HIGH", decision_ms=500), ends("approved", "human"))
    clock.seconds = 100
    auto_approved(store, interaction(status="auto_approved", decision_ms=1))
    metrics = compute(store, clock.now(), clock.now() - timedelta(seconds=50))
    assert metrics.interactions == 1
    assert metrics.manual_interventions == metrics.response_seconds.count == 0
    assert metrics.decision_ms.p99 == 1
    assert metrics.decisions == {("approved", "engine"): 1}


# --- Prometheus ----------------------------------------------------------------------------------

LINE = re.compile(
    r"[a-z_]+(\{[a-z_]+=\"([^\"\\\n]|\\[\\n\"])*\"(,[a-z_]+=\"([^\"\\\n]|\\[\\n\"])*\")*\})?"
    r" -?[0-9.]+(e-?[0-9]+)?"
)


def test_every_series_has_help_and_type(store: Store, clock: FakeClock) -> None:
    auto_approved(store, interaction(status="auto_approved", decision_ms=2.0))
    reviewed(store)
    text = as_prometheus(metrics_of(store, clock))
    assert text.endswith("\n")
    helped, typed = set(), {}
    for line in text.splitlines():
        match line.split(" "):
            case ["#", "HELP", name, *_]:
                helped.add(name)
            case ["#", "TYPE", name, kind]:
                assert name not in typed
                typed[name] = kind
            case _:
                assert LINE.fullmatch(line), line
                name = re.split(r"[{ ]", line)[0]
                # What is old is forgotten: nothing here only grows, as a counter must.
                assert typed[name] == "gauge"
    assert helped == typed.keys()
    assert 'ironcurtain_decision_seconds{quantile="0.99"} 0.002\n' in text


def test_what_has_no_value_yet_has_no_line(store: Store, clock: FakeClock) -> None:
    text = as_prometheus(metrics_of(store, clock))
    assert "# TYPE ironcurtain_safe_auto_approved_ratio gauge\n# HELP" in text
    assert "quantile" not in text


@pytest.mark.parametrize("words", ['a"b', "a\\b", 'a\n{evil="1"} 1', "a\r\n# TYPE x counter"])
def test_a_label_cannot_end_its_line(store: Store, clock: FakeClock, words: str) -> None:
    record_interaction(store, interaction(status="auto_approved"), approval(by=words))
    found = metrics_of(store, clock)
    assert sum(found.decisions.values()) == 1
    (line,) = [one for one in as_prometheus(found).splitlines() if "decision=" in one]
    assert LINE.fullmatch(line)
    assert line.startswith('ironcurtain_decisions{decision="approved",decided_by="a')


def test_reviewers_are_counted_together(store: Store, clock: FakeClock) -> None:
    for name in ("a", "b"):
        reviewed(store, end=ends("approved", f"reviewer:{name}"))
    assert metrics_of(store, clock).decisions["approved", "reviewer"] == 2
