"""How many statements a step of an interaction takes: each waits for the database's server."""

import pytest
import sqlalchemy as sa

from ironcurtain_proxy.auto_confirm.store.store import Store
from tests.auto_confirm.store.direct import recorded, trail
from tests.auto_confirm.store.specimens import approval, ends, interaction, task
from tests.fakes import FakeClock


class Statements(list[str]):
    """Those of one store, without the begin and end of transactions."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        sa.event.listen(store._database._engine, "before_cursor_execute", self._note)

    def _note(self, _connection: object, _cursor: object, said: str, *_: object) -> None:
        if not said.startswith("BEGIN"):
            self.append(said.split(maxsplit=1)[0])

    def taken(self) -> list[str]:
        taken = [*self]
        self.clear()
        return taken


@pytest.fixture
def statements(store: Store) -> Statements:
    return Statements(store)


def test_a_call_that_the_engine_approves_takes_two_statements(
    store: Store, statements: Statements
) -> None:
    number = store.record_call(interaction(status="auto_approved"), approval())
    assert statements.taken() == ["INSERT", "INSERT"]
    found = recorded(store, number)
    assert found is not None
    assert found.decided_by == trail(store, number)[0].decided_by == approval().decided_by


def test_a_question_takes_four_statements_and_its_answer_five(
    store: Store, statements: Statements
) -> None:
    number = store.record_call(interaction(), task())
    assert statements.taken() == ["INSERT", "INSERT", "UPDATE", "INSERT"]
    found = recorded(store, number)
    assert found is not None
    assert (found.status, found.decided_by) == ("held", "engine:risk")
    assert store.end(number, ends(by="reviewer:a"), found.request_id)
    assert statements.taken()[-5:] == ["UPDATE", "SELECT", "INSERT", "INSERT", "UPDATE"]
    found = recorded(store, number)
    assert found is not None
    assert (found.status, found.decided_by) == ("approved", "reviewer:a")


def test_what_the_engine_knows_takes_three_statements_and_a_session_two(
    store: Store, statements: Statements, clock: FakeClock
) -> None:
    learned = store.learned()
    assert statements.taken() == ["SELECT"] * 4
    store.learned(learned)
    assert statements.taken() == ["SELECT"] * 3
    store.session_state("s1", clock.now())
    assert statements.taken() == ["SELECT"] * 2


def test_an_answer_to_another_request_ends_nothing(store: Store) -> None:
    number = store.record_call(interaction(), task())
    assert not store.end(number, ends(by="reviewer:a"), "another")
    found = recorded(store, number)
    assert found is not None
    assert (found.status, found.decided_by) == ("held", "engine:risk")
