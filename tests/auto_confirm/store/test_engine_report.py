"""The page: complete in itself, and nothing that an agent says becomes part of it."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.interaction import RiskBand
from ironcurtain_proxy.auto_confirm.store.metrics import Ratio, compute
from ironcurtain_proxy.auto_confirm.store.report import Series, collect, engine_part
from ironcurtain_proxy.auto_confirm.store.rows import FinalStatus
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from ironcurtain_proxy.report.plots import page as drawn
from tests.auto_confirm.store.direct import open_task, record_interaction
from tests.auto_confirm.store.specimens import auto_approved, ends, interaction, reviewed, task
from tests.auto_confirm.store.used_again import UsedAgain
from tests.fakes import FakeClock
from tests.report.parsed import Parsed

EVIL = '<script>alert(1)</script><img src=x onerror="x()"> & \u202e\x1b[31m "quoted"'


HOW: tuple[tuple[FinalStatus, str], ...] = (
    ("approved", "reviewer:a"),
    ("rejected", "human"),
    ("rejected", "timeout"),
)


class Day(NamedTuple):
    """A store after a day of work, and the clock at its end. Tests only read it."""

    store: Store
    clock: FakeClock


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(
    request: pytest.FixtureRequest, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Day]:
    """A day of work with every outcome and every band."""
    clock, state = FakeClock(), tmp_path_factory.mktemp("filled")
    with ExitStack() as stack:
        url = None
        if request.param == "sqlite":
            shutil.copy(sqlite_template, state)
        else:
            again: UsedAgain = request.getfixturevalue("used_again")
            url = again.url_of(stack.enter_context(again.one()))
        store = stack.enter_context(open_store(url, state, clock))
        fill(store, clock)
        yield Day(store, clock)


def fill(store: Store, clock: FakeClock) -> None:
    bands: tuple[RiskBand, ...] = ("SAFE", "LOW", "MEDIUM", "HIGH", "CRITICAL")
    for hour in range(24):
        clock.seconds = hour * 3600
        for band in bands[:2]:
            auto_approved(
                store, interaction(status="auto_approved", band=band, decision_ms=3.0, session=EVIL)
            )
        identifier = record_interaction(store, interaction(band=bands[hour % 5], operation=EVIL))
        open_task(store, identifier, task(reason=EVIL))
        clock.seconds += 10 * hour
        status, by = HOW[hour % 3]
        assert store.end(identifier, ends(status, by))


def page_of(store: Store, clock: FakeClock) -> str:
    return drawn([engine_part(compute(store, clock.now()), collect(store))], clock.now())


def test_the_page_has_every_plot_and_fetches_nothing(filled: Day) -> None:
    page = page_of(*filled)
    parsed = Parsed(page)
    assert parsed.open == []
    assert parsed.tags["svg"] == 4
    assert parsed.tags["rect"] > 40
    assert parsed.tags["polyline"] == parsed.tags["table"] == 1
    assert not parsed.tags.keys() & {"script", "link", "img", "iframe", "object", "base"}
    assert not parsed.attributes & {"src", "href", "style", "onerror", "onload"}
    assert "url(" not in page
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    assert "default-src 'none'" in page
    assert "prefers-color-scheme:dark" in page


def test_an_agents_words_are_words(filled: Day) -> None:
    page = page_of(*filled)
    assert "<script" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert any(word.startswith("<script>alert(1)</script><img") for word in Parsed(page).words)


def test_a_page_about_nothing_says_so(store: Store, clock: FakeClock) -> None:
    parsed = Parsed(page_of(store, clock))
    assert parsed.words.count("Nothing yet.") == 5
    assert parsed.tags["svg"] == 0


def test_targets_are_judged(store: Store, clock: FakeClock) -> None:
    auto_approved(store, interaction(status="auto_approved", band="HIGH", decision_ms=100.0))
    page = page_of(store, clock)
    assert '<dd>0 %</dd><dd class="aim missed">target: 100%; 0 of 1 HIGH and CRITICAL</dd>' in page
    assert '<dd>100 / 100 ms of 1</dd><dd class="aim missed">target: below 100 ms' in page
    assert '<dt>Manual interventions</dt><dd>0</dd><dd class="aim met">target: 0</dd>' in page


def test_what_is_nearly_all_is_not_shown_as_all(store: Store, clock: FakeClock) -> None:
    metrics = replace(compute(store, clock.now()), high_risk_escalated=Ratio(9999, 10000))
    page = drawn([engine_part(metrics, collect(store))], clock.now())
    assert '<dd>99.9 %</dd><dd class="aim missed">target: 100%; 9999 of 10000' in page


# --- series --------------------------------------------------------------------------------------


def test_every_prompt_is_in_one_bar_and_bars_add_up(filled: Day) -> None:
    series = collect(filled.store)
    assert series.step == timedelta(hours=1)
    assert len(series.slots) == 24
    total: Counter[str] = Counter()
    for slot in series.slots:
        total.update(slot.decisions)
    expected = {"auto-approved": 48, "approved": 8, "rejected": 8, "timed out": 8}
    assert total == expected
    assert sum(expected.values()) == compute(filled.store, filled.clock.now()).interactions
    by_band: Counter[str] = Counter()
    for counts in series.bands.values():
        by_band.update(counts)
    assert by_band == expected
    assert list(series.bands) == ["SAFE", "LOW", "MEDIUM", "HIGH", "CRITICAL"]


def test_the_rate_of_safe_operations_is_that_of_each_stretch(filled: Day) -> None:
    slots = collect(filled.store).slots
    # At 0 and 1 o'clock, 5 and 6, … a safe operation went to a reviewer.
    assert [(slot.safe_approved, slot.safe_decided) for slot in slots[:5]] == [
        *((2, 3), (2, 3), (2, 2), (2, 2), (2, 2))
    ]


def test_response_times_are_put_in_the_bar_below_their_bound(
    store: Store, clock: FakeClock
) -> None:
    for seconds in (0, 1, 14.9, 15, 299, 300, 4000):
        identifier = record_interaction(store, interaction())
        open_task(store, identifier, task())
        clock.seconds += seconds
        store.end(identifier, ends())
    assert list(collect(store).responses) == [1, 1, 1, 1, 0, 0, 1, 2]


def test_the_bars_of_high_risk_are_as_long_as_the_number_says(
    store: Store, clock: FakeClock
) -> None:
    reviewed(store, interaction(band="HIGH"), end=ends("rejected", reason="reviewer:architect"))
    waiting = record_interaction(store, interaction(band="HIGH"))
    open_task(store, waiting, task())
    metrics, series = compute(store, clock.now()), collect(store)
    assert metrics.high_risk_escalated == Ratio(2, 2)
    assert series.bands == {"HIGH": {"rejected": 1, "waiting": 1}}
    page = drawn([engine_part(metrics, series)], clock.now())
    assert "refused by architect" in page
    assert "reviewer:" not in page


def test_reasons_are_those_of_what_was_not_approved(store: Store) -> None:
    auto_approved(store)
    for _ in range(3):
        reviewed(store, end=ends("rejected", reason="not on a Friday"))
    reviewed(store, end=ends("approved", reason="why not"))
    assert collect(store).reasons == (("High risk", 4), ("not on a Friday", 3))


@pytest.mark.parametrize(
    ("span", "step"),
    [
        (timedelta(minutes=47), timedelta(minutes=1)),
        (timedelta(minutes=48), timedelta(minutes=5)),
        (timedelta(days=1), timedelta(hours=1)),
        (timedelta(days=30), timedelta(days=1)),
        (timedelta(days=900), timedelta(days=7)),
    ],
)
def test_stretches_are_as_fine_as_can_be_told_apart(
    sqlite_store: Store, clock: FakeClock, span: timedelta, step: timedelta
) -> None:
    auto_approved(sqlite_store)
    clock.seconds = span.total_seconds()
    auto_approved(sqlite_store)
    series = collect(sqlite_store)
    assert series.step == step
    assert sum(sum(slot.decisions.values()) for slot in series.slots) == 2
    starts = [slot.start for slot in series.slots]
    assert {b - a for a, b in pairwise(starts)} == {step}


def test_a_report_can_begin_at_a_time(store: Store, clock: FakeClock) -> None:
    reviewed(store)
    clock.seconds = 100
    auto_approved(store)
    series: Series = collect(store, clock.now() - timedelta(seconds=50))
    assert series.bands == {"LOW": {"auto-approved": 1}}
    assert series.reasons == ()
    assert not any(series.responses)
