"""What an approved plan lets its calls do, and that nothing takes more than that."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.grants.book import MAX_RUNS, Budget, BudgetBook, Tool
from ironcurtain_proxy.model.grant import GrantId

pytestmark = pytest.mark.requirement("D-25")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EDIT = ("files", "edit")
SEND = ("web", "send")
WRITE = frozenset({"fs.write"})


def budget(name: str = "b", edits: int = 2, parent: Budget | None = None) -> Budget:
    return Budget(
        id=GrantId(name),
        capabilities=WRITE,
        calls=Counter({EDIT: edits}),
        expires=NOW + timedelta(minutes=10),
        parent=parent,
    )


def opened(*budgets: Budget) -> BudgetBook:
    book = BudgetBook()
    for one in budgets:
        assert book.open(one)
    return book


def spend(
    book: BudgetBook,
    tool: Tool,
    capabilities: frozenset[str],
    now: datetime,
    run: GrantId | None = None,
) -> Budget | None:
    found = book.find(tool, capabilities, now, run)
    if found is not None:
        book.spend(found, tool)
    return found


def test_looking_for_a_run_takes_nothing_out_of_it() -> None:
    mine = budget(edits=1)
    book = opened(mine)
    assert [book.find(EDIT, WRITE, NOW) for _ in range(3)] == [mine] * 3
    assert mine.calls[EDIT] == 1


@pytest.mark.requirement("D-26", "D-27")
def test_a_run_pays_for_as_many_calls_as_were_announced_and_then_ends() -> None:
    book = opened(budget(edits=2))
    assert [spend(book, EDIT, WRITE, NOW) is not None for _ in range(3)] == [True, True, False]
    assert book.get("b", NOW) is None


def test_a_run_does_not_pay_for_another_tool_or_another_capability() -> None:
    book = opened(budget())
    assert spend(book, SEND, WRITE, NOW) is None
    assert spend(book, EDIT, frozenset({"fs.write", "fs.delete"}), NOW) is None


def test_a_run_ends_by_itself() -> None:
    book = opened(budget())
    assert spend(book, EDIT, WRITE, NOW + timedelta(minutes=10)) is None


def test_a_closed_run_pays_for_nothing() -> None:
    book = opened(budget())
    assert book.close(GrantId("b"))
    assert not book.close(GrantId("b"))
    assert spend(book, EDIT, WRITE, NOW) is None


def test_a_private_run_pays_only_for_calls_that_name_it() -> None:
    mine = budget()
    mine.private = True
    book = opened(mine)
    assert spend(book, EDIT, WRITE, NOW) is None
    assert spend(book, EDIT, WRITE, NOW, GrantId("b")) is mine
    assert spend(book, EDIT, WRITE, NOW, GrantId("other")) is None


def test_what_a_child_may_do_is_taken_from_its_parent() -> None:
    parent = budget("p", edits=3)
    book = opened(parent)
    assert parent.holds({EDIT: 3}, WRITE)
    assert not parent.holds({EDIT: 4}, WRITE)
    assert not parent.holds({EDIT: 1}, frozenset({"net.egress"}))
    assert book.open(budget("c", edits=2, parent=parent))
    assert parent.calls[EDIT] == 1
    spent = [spend(book, EDIT, WRITE, NOW) for _ in range(4)]
    assert [one.id if one else None for one in spent] == ["p", "c", "c", None]


def test_a_child_ends_with_its_parent() -> None:
    parent = budget("p", edits=3)
    book = opened(parent, budget("c", edits=2, parent=parent))
    book.close(GrantId("p"))
    assert book.get("c", NOW) is None


def test_no_more_runs_are_open_than_a_session_needs() -> None:
    book = opened(*[budget(str(number)) for number in range(MAX_RUNS)])
    assert not book.open(budget("one too many"))


@given(st.lists(st.tuples(st.sampled_from(["p", "c", "x"]), st.integers(1, 4)), max_size=12))
def test_children_never_make_more_calls_than_was_approved(acts: list[tuple[str, int]]) -> None:
    parent = budget("p", edits=5)
    book = opened(parent)
    spent = 0
    for number, (act, count) in enumerate(acts):
        if act == "c" and book.get("p", NOW) is parent and parent.holds({EDIT: count}, WRITE):
            book.open(budget(f"c{number}", edits=count, parent=parent))
        elif act == "x":
            book.close(GrantId(f"c{number - 1}"))
        else:
            spent += spend(book, EDIT, WRITE, NOW) is not None
    while spend(book, EDIT, WRITE, NOW) is not None:
        spent += 1
    assert spent <= 5
