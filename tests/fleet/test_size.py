"""A small fleet through kills and forged answers; `scripts/fleet-size` runs it at its size."""

import pytest

from tests.auto_confirm.store.postgres import find
from tests.fleet.at_size import Size, run
from tests.program import ROOT


def test_nothing_is_lost_done_twice_or_believed_through_kills_of_pages_and_database() -> None:
    pytest.importorskip("joserfc", reason="the extra desk is not installed: scripts/setup")
    if find("postgres") is None or not (ROOT / "node_modules/oidc-provider").is_dir():
        pytest.skip("no postgres, or no oidc-provider: npm ci")
    size = Size(
        proxies=1, mailboxes=6, rounds=1, desk_kills=2, database_kills=1, forged=70, waiting=0
    )
    found = run(size)
    assert (found.lost, found.twice, found.without_intent, found.believed) == (0, 0, 0, 0)
    assert found.forged == 70
