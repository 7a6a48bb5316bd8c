"""How a call compares with what was done before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.extraction import subject_of
from ironcurtain_proxy.auto_confirm.engine.interaction import InteractionHistory, OperationKind
from ironcurtain_proxy.auto_confirm.engine.risk import (
    ENOUGH,
    EVERYDAY,
    compared,
    is_unusual,
    similarity,
)
from ironcurtain_proxy.model.values import RealPath
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import CALM, ON, decided
from tests.tables import table

NAMES = st.lists(st.sampled_from(("a", "b", "c")), max_size=4).map(tuple)


def paths(*texts: str) -> list[RealPath]:
    return [RealPath.from_text(text) for text in texts]


@pytest.mark.requirement("B-34", "B-8")
def test_what_was_never_done_in_many_calls_is_unusual() -> None:
    assert is_unusual("network", {"read": ENOUGH})
    assert not is_unusual("network", {"read": ENOUGH - 1})
    assert not is_unusual("network", {"read": ENOUGH, "network": 1})


@pytest.mark.parametrize("operation", sorted(EVERYDAY))
def test_everyday_work_is_never_unusual(operation: OperationKind) -> None:
    assert not is_unusual(operation, {"deploy": ENOUGH})


@pytest.mark.requirement("B-116")
@pytest.mark.parametrize(
    ("named", "near"),
    table(
        "auto_confirm/engine/history.the_farthest_path_says_how_near_a_call",
        list[tuple[list[str], int]],
    ),
)
def test_the_farthest_path_says_how_near_a_call_is_to_earlier_work(
    named: list[str], near: int
) -> None:
    assert similarity(paths(*named), frozenset(paths("/var/data/in"))) == near


def test_without_earlier_work_nothing_is_unlike_it() -> None:
    assert similarity(paths("/etc/hosts"), frozenset()) == 100


@given(st.lists(NAMES, max_size=4), NAMES, st.sets(NAMES, max_size=4))
def test_another_path_never_brings_a_call_nearer(
    named: list[tuple[str, ...]], other: tuple[str, ...], known: set[tuple[str, ...]]
) -> None:
    directories = frozenset(map(RealPath, known))
    before = similarity([RealPath(one) for one in named], directories)
    assert similarity([RealPath(one) for one in (*named, other)], directories) <= before


@pytest.mark.requirement("B-170", "B-34")
def test_history_counts_against_a_call_and_never_for_it() -> None:
    past = InteractionHistory(
        operations={"edit": ENOUGH}, directories=frozenset(paths("/var/data"))
    )
    known = replace(CALM, history=past)
    fetch = calls.fetch()
    interaction, knowledge = compared(fetch, subject_of(fetch), known)
    assert interaction.unusual
    assert decided(interaction, ON, knowledge).target == "wrapper_claude"
    elsewhere = calls.edit("/etc/hosts")
    interaction, knowledge = compared(elsewhere, subject_of(elsewhere), known)
    assert not interaction.unusual
    assert ("unlike earlier work", -15) in decided(interaction, ON, knowledge).confidence_factors
    here = calls.edit("/srv/project/a")
    assert compared(here, subject_of(here), known) == (here, known)
