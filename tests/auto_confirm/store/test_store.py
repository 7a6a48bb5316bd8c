"""The life of an interaction in the store, on each database."""

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.store.rows import (
    AlreadyDecidedError,
    Ending,
    FinalStatus,
    InteractionRow,
    PermissionDecision,
    Status,
    StoreError,
)
from ironcurtain_proxy.auto_confirm.store.store import Store
from ironcurtain_proxy.auto_confirm.store.tables import (
    HISTORY,
    INTERACTIONS,
    REVIEWER_DECISIONS,
    TASKS,
)
from tests.auto_confirm.store.direct import (
    open_task,
    pending_of_others,
    record_decision,
    record_interaction,
    recorded,
    trail,
)
from tests.auto_confirm.store.specimens import (
    approval,
    auto_approved,
    ends,
    interaction,
    reviewed,
    task,
)
from tests.fakes import FakeClock


def rows(store: Store, table: sa.Table) -> list[dict[str, object]]:
    def work(connection: sa.Connection) -> list[dict[str, object]]:
        found = connection.execute(sa.select(table).order_by(table.c.id)).mappings()
        return [dict(row) for row in found]

    return store.read(work)


@pytest.mark.requirement("B-45", "B-46", "B-124", "B-66")
def test_an_approval_by_the_engine_is_one_row_with_one_decision(
    store: Store, clock: FakeClock
) -> None:
    row = InteractionRow(
        request_id="r1",
        session_name="worker-1",
        session_type="worker",
        operation="file_edit",
        scope="/srv/app/a.md",
        status="auto_approved",
        risk_score=0.3,
        risk_band="LOW",
        confidence_score=0.85,
        factors={"row": "file_edit_project", "base": 0.3},
        decision_ms=4.5,
    )
    identifier = record_interaction(store, row, approval())
    found = recorded(store, identifier)
    assert found is not None
    assert (found.request_id, found.session_name, found.scope) == (
        "r1",
        "worker-1",
        "/srv/app/a.md",
    )
    assert (found.status, found.auto_approved) == ("auto_approved", True)
    assert (found.risk_score, found.confidence_score, found.risk_band) == (0.3, 0.85, "LOW")
    assert found.factors == {"row": "file_edit_project", "base": 0.3}
    assert found.created_at == found.responded_at == clock.now()
    assert found.decided_by == "engine:pattern"
    assert trail(store, identifier) == (approval(),)
    assert trail(store, identifier)[0].is_automatic


@pytest.mark.requirement("B-102", "B-53", "B-54", "B-55", "B-56", "B-123")
def test_asking_a_reviewer_holds_the_interaction(store: Store, clock: FakeClock) -> None:
    identifier = record_interaction(store, interaction())
    clock.seconds = 2
    number = open_task(store, identifier, task())
    found = recorded(store, identifier)
    assert found is not None
    assert found.status == "held"
    assert found.escalation_task_id == number
    assert found.escalation_target == "architect_manager"
    assert found.escalation_reason == "High risk"
    assert found.escalation_time == found.held_at == clock.now()
    (row,) = rows(store, TASKS)
    assert row["type"] == "claude_permission_review"
    assert (row["priority"], row["timeout_minutes"]) == (9, 5.0)
    assert (row["assign_to"], row["status"]) == ("architect_manager", "open")
    (line,) = trail(store, identifier)
    assert (line.decision, line.escalation_target) == ("escalated", "architect_manager")


def test_an_answer_ends_the_interaction_and_its_task(store: Store, clock: FakeClock) -> None:
    identifier = record_interaction(store, interaction())
    open_task(store, identifier, task())
    clock.seconds = 42
    end = Ending(status="approved", decided_by="reviewer:a", reason="fine", response="go on, then")
    assert store.end(identifier, end)
    found = recorded(store, identifier)
    assert found is not None
    assert (found.status, found.auto_approved) == ("approved", False)
    assert (found.response, found.decided_by) == ("go on, then", "reviewer:a")
    assert found.responded_at == clock.now()
    assert [row["status"] for row in rows(store, TASKS)] == ["answered"]
    (row,) = rows(store, REVIEWER_DECISIONS)
    assert (row["decision"], row["decided_by"]) == ("approved", "reviewer:a")
    assert row["response_seconds"] == 42


@pytest.mark.requirement("B-60", "B-169")
def test_an_unanswered_question_goes_to_the_next_reviewer(store: Store, clock: FakeClock) -> None:
    identifier = record_interaction(store, interaction())
    open_task(store, identifier, task())
    clock.seconds = 300
    assert store.record_escalation(
        identifier, "architect_manager", "claude_code_high_level", "no answer in 5 minutes"
    )
    second = open_task(store, identifier, task("claude_code_high_level", "no answer in 5 minutes"))
    found = recorded(store, identifier)
    assert found is not None
    assert (found.status, found.escalation_count) == ("escalated", 1)
    assert found.escalation_target == "claude_code_high_level"
    assert found.escalation_task_id == second
    # What it waits for is new; how long it waits is not.
    assert found.escalation_time == clock.now()
    assert found.held_at != clock.now()
    (line,) = rows(store, HISTORY)
    assert (line["from_target"], line["to_target"]) == (
        "architect_manager",
        "claude_code_high_level",
    )
    assert [row["status"] for row in rows(store, TASKS)] == ["timed_out", "open"]
    assert [one.decision for one in trail(store, identifier)] == [
        *("escalated", "timed_out", "escalated")
    ]
    clock.seconds = 600
    assert store.end(identifier, ends("rejected", "timeout", "nobody answered"))
    assert trail(store, identifier)[-1].decision == "timed_out"
    assert [row["status"] for row in rows(store, TASKS)] == ["timed_out", "timed_out"]
    assert rows(store, REVIEWER_DECISIONS) == []


@pytest.mark.requirement("B-119")
@pytest.mark.parametrize("first", ["approved", "rejected"])
@pytest.mark.parametrize("second", ["approved", "rejected", "auto_approved"])
def test_the_first_answer_wins(store: Store, first: FinalStatus, second: FinalStatus) -> None:
    identifier = reviewed(store, end=ends(first))
    before = trail(store, identifier)
    assert not store.end(identifier, ends(second, "reviewer:late"))
    found = recorded(store, identifier)
    assert found is not None
    assert found.status == first
    assert trail(store, identifier) == before


MOVES: dict[tuple[Status, FinalStatus], bool] = {
    ("pending", "auto_approved"): True,
    ("pending", "approved"): False,
    ("pending", "rejected"): True,
    ("held", "auto_approved"): False,
    ("held", "approved"): True,
    ("held", "rejected"): True,
    ("escalated", "auto_approved"): False,
    ("escalated", "approved"): True,
    ("escalated", "rejected"): True,
}


@pytest.mark.parametrize(("move", "may"), MOVES.items(), ids=str)
def test_only_these_moves_end_an_interaction(
    sqlite_store: Store, move: tuple[Status, FinalStatus], may: bool
) -> None:
    identifier = record_interaction(sqlite_store, interaction())
    if move[0] != "pending":
        open_task(sqlite_store, identifier, task())
    if move[0] == "escalated":
        sqlite_store.record_escalation(identifier, "a", "b", "late")
    by = "engine:x" if move[1] == "auto_approved" else "human"
    assert sqlite_store.end(identifier, ends(move[1], by)) is may
    found = recorded(sqlite_store, identifier)
    assert found is not None
    assert found.status == (move[1] if may else move[0])


@pytest.mark.requirement("B-172")
def test_what_nobody_answered_can_end_in_an_approval_by_the_final_table(store: Store) -> None:
    identifier = record_interaction(store, interaction())
    by_table = ends("auto_approved", "timeout", "nobody answered; on_timeout approves")
    assert not store.end(identifier, by_table)
    open_task(store, identifier, task())
    assert store.end(identifier, by_table)
    found = recorded(store, identifier)
    assert found is not None
    assert found.auto_approved
    line = trail(store, identifier)[-1]
    assert (line.decision, line.is_automatic) == ("approved", True)
    assert store.learned().rates == {}


def test_nothing_is_approved_twice(store: Store) -> None:
    identifier = auto_approved(store)
    with pytest.raises(AlreadyDecidedError):
        record_decision(store, identifier, approval("human", "again"))
    with pytest.raises(AlreadyDecidedError):
        record_decision(
            store,
            identifier,
            PermissionDecision(decision="rejected", decided_by="human", reason="no"),
        )
    assert len(trail(store, identifier)) == 1


def test_the_database_itself_refuses_a_second_approval(store: Store) -> None:
    identifier = auto_approved(store)
    statement = sa.text(
        "INSERT INTO permission_decisions (interaction_id, decision) VALUES (:i, 'approved')"
    )
    with pytest.raises(AlreadyDecidedError):
        store._database.write(lambda c: c.execute(statement, {"i": identifier}))


def test_what_ran_out_of_time_is_not_approved_afterwards(store: Store) -> None:
    identifier = reviewed(store, end=ends("rejected", "timeout", "nobody answered"))
    with pytest.raises(AlreadyDecidedError):
        record_decision(store, identifier, approval("reviewer:late"))
    with pytest.raises(AlreadyDecidedError):
        open_task(store, identifier, task())
    assert not store.record_escalation(identifier, "a", "b", "late")
    assert "approved" not in {one.decision for one in trail(store, identifier)}


def test_a_request_is_recorded_once(store: Store) -> None:
    auto_approved(store, interaction(request="r1", status="auto_approved"))
    with pytest.raises(StoreError):
        record_interaction(store, interaction(request="r1"))
    assert len(rows(store, INTERACTIONS)) == 1


def test_a_decision_that_cannot_be_written_leaves_no_interaction(store: Store) -> None:
    bad = replace(approval(), decision=None)
    with pytest.raises(StoreError):
        record_interaction(store, interaction(status="auto_approved"), bad)
    assert rows(store, INTERACTIONS) == []


@pytest.mark.requirement("B-129")
def test_a_decision_belongs_to_an_interaction(store: Store) -> None:
    with pytest.raises(StoreError):
        record_decision(store, 4711, approval())
    with pytest.raises(StoreError):
        open_task(store, 4711, task())
    assert not store.end(4711, ends())
    assert recorded(store, 4711) is None
    statement = sa.text(
        "INSERT INTO permission_decisions (interaction_id, decision) VALUES (4711, 'escalated')"
    )
    with pytest.raises(StoreError):
        store._database.write(lambda c: c.execute(statement))


@pytest.mark.parametrize(
    "words",
    ["nul \x00 in it", "surrogate \udcff", "'; DROP TABLE claude_interactions; --", "%s %(x)s :x"],
)
def test_an_agents_words_are_stored_and_do_nothing(store: Store, words: str) -> None:
    row = replace(interaction(), prompt_text=words, scope=words, session_name=words)
    identifier = record_interaction(store, row)
    found = recorded(store, identifier)
    assert found is not None
    assert found.scope is not None
    assert found.scope.isprintable()
    assert pending_of_others(store, words) == 0
    assert pending_of_others(store, "another") == 1


@pytest.mark.requirement("B-150", "B-148")
def test_the_safe_paths_of_the_document_are_there(store: Store) -> None:
    assert [(one.path, one.operation) for one in store.learned().safe_paths] == [
        ("/tmp/", None),
        ("/private/tmp/", None),
        ("project_root/", None),
        (".claude/", None),
        (".git/", None),
    ]
