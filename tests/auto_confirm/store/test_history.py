"""What was approved lately."""

import pytest

from ironcurtain_proxy.auto_confirm.store.interactions import LATELY
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.model.path import RealPath
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
    found = store.recent_work()
    assert found.operations == {"edit": 2, "delete": 1}
    assert found.directories == {RealPath(("srv",)), RealPath(("srv", "c"))}


def test_what_lies_far_back_is_forgotten(sqlite_store: Store) -> None:
    auto_approved(sqlite_store, interaction(operation="deploy", status="auto_approved"))
    for _ in range(LATELY):
        auto_approved(sqlite_store, interaction(operation="edit", status="auto_approved"))
    assert sqlite_store.recent_work().operations == {"edit": LATELY}
