"""What was approved lately, and what later decisions add to what is known."""

import pytest

from ironcurtain_proxy.auto_confirm.engine.interaction import ApproveRate
from ironcurtain_proxy.auto_confirm.store.patterns import LATELY
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.model.values import RealPath
from tests.auto_confirm.store.aged_interactions import add_pattern
from tests.auto_confirm.store.direct import record_interaction
from tests.auto_confirm.store.specimens import auto_approved, ends, interaction, reviewed


@pytest.mark.requirement("B-170")
def test_approvals_of_all_sessions_count_and_nothing_else(store: Store) -> None:
    auto_approved(store, interaction(operation="edit", scope="/srv/a", status="auto_approved"))
    auto_approved(
        store, interaction(operation="edit", scope=None, status="auto_approved", session="s2")
    )
    reviewed(store, interaction(operation="delete", scope="/srv/b\n/srv/c/d"), end=ends("approved"))
    reviewed(store, interaction(operation="deploy", scope="/srv/d"), end=ends("rejected"))
    record_interaction(store, interaction(operation="network", scope="/srv/e"))
    found = store.learned().history
    assert found.operations == {"edit": 2, "delete": 1}
    assert found.directories == {RealPath(("srv",)), RealPath(("srv", "c"))}


def test_what_lies_far_back_is_forgotten(sqlite_store: Store) -> None:
    auto_approved(sqlite_store, interaction(operation="deploy", status="auto_approved"))
    for _ in range(LATELY):
        auto_approved(sqlite_store, interaction(operation="edit", status="auto_approved"))
    assert sqlite_store.learned().history.operations == {"edit": LATELY}


def test_later_decisions_are_added_to_the_rates_and_counted_once(store: Store) -> None:
    reviewed(store, interaction(scope="/srv/a"))
    reviewed(store, interaction(scope="/srv/b"), end=ends("rejected"))
    first = store.learned()
    assert store.learned(first).rates == first.rates
    reviewed(store, interaction(scope="/srv/b"))
    reviewed(store, interaction(scope="/srv/c"))
    second = store.learned(first)
    assert second.rates == store.learned().rates
    assert second.rates["file_edit", "/srv/b"] == ApproveRate(1, 2)
    assert first.rates["file_edit", "/srv/b"] == ApproveRate(0, 1)


def test_a_new_reading_brings_new_patterns_and_keeps_what_was_approved(store: Store) -> None:
    auto_approved(store)
    first = store.learned()
    auto_approved(store)
    add_pattern(store)
    second = store.learned(first)
    assert len(second.patterns) == 1
    assert second.history == first.history != store.learned().history
