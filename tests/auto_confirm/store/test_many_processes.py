"""Many proxies on one store: nothing is lost, nothing is there twice, one answer wins."""

from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from ironcurtain_proxy.auto_confirm.store.rows import NewPattern
from ironcurtain_proxy.auto_confirm.store.store import open_store
from ironcurtain_proxy.auto_confirm.store.tables import DECISIONS, INTERACTIONS
from tests import program
from tests.auto_confirm.store.direct import open_task, record_interaction
from tests.auto_confirm.store.specimens import interaction, task
from tests.fakes import FakeClock
from tests.program import PATIENCE

ROOT = Path(__file__).parents[3]
ROWS = 10


def crowd(url: str | None, state: Path, shared: int, size: int) -> list[list[str]]:
    """What each of so many processes printed; they begin together."""
    members = [
        program.start_here(
            "tests.auto_confirm.store.writing_process",
            *(url or "", str(state), f"p{number}", str(ROWS), str(shared)),
        )
        for number in range(size)
    ]
    for member in members:
        member.stdin.write(b"go\n")
    printed = [member.stdout.read().decode().splitlines() for member in members]
    assert [member.wait(PATIENCE) for member in members] == [0] * size
    return printed


@pytest.mark.requirement("B-180")
def test_many_processes_write_at_once(url: str | None, tmp_path: Path) -> None:
    size = 10 if url is None else 5
    state = tmp_path / "state"
    with open_store(url, state, FakeClock()) as store:
        shared = record_interaction(store, interaction(session="shared"))
        open_task(store, shared, task())
        store.add_pattern(
            NewPattern(name="p", operation="o", scope_regex=None, created_by="operator")
        )
        printed = crowd(url, state, shared, size)
        assert Counter(lines[-1] for lines in printed) == {"won": 1, "lost": size - 1}
        said = [int(line) for lines in printed for line in lines[:-1]]
        assert len(set(said)) == len(said) == size * (ROWS + 1)

        def stored(connection: sa.Connection) -> tuple[set[int], list[int], int]:
            identifiers = connection.execute(sa.select(INTERACTIONS.c.id)).scalars()
            final = sa.select(DECISIONS.c.interaction_id).where(DECISIONS.c.decision == "approved")
            requests = sa.select(sa.func.count(INTERACTIONS.c.request_id.distinct()))
            return (
                set(identifiers),
                list(connection.execute(final).scalars()),
                connection.execute(requests).scalar_one(),
            )

        identifiers, approved, requests = store.read(stored)
        assert identifiers == {shared, *said}
        assert sorted(approved) == sorted(identifiers)
        assert requests == len(identifiers)
        (pattern,) = store.patterns()
        assert pattern.usage_count == size * ROWS


def test_many_processes_make_the_store_together(empty_url: str | None, tmp_path: Path) -> None:
    size = 4
    printed = crowd(empty_url, tmp_path / "state", 0, size)
    assert all(len(lines) == ROWS + 2 for lines in printed)
    with open_store(empty_url, tmp_path / "state", FakeClock()) as store:
        assert len(store.learned().safe_paths) == 5
        count = sa.select(sa.func.count()).select_from(INTERACTIONS)
        assert store.read(lambda c: c.execute(count).scalar_one()) == size * (ROWS + 1)
