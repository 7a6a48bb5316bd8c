"""Patterns, and what the store learns: it proposes, and never decides."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.auto_confirm.engine.interaction import ApproveRate, RiskBand
from ironcurtain_proxy.auto_confirm.store.rows import NewPattern, PatternRow, StoreError
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from tests.auto_confirm.store.direct import use_pattern
from tests.auto_confirm.store.specimens import auto_approved, ends, interaction, reviewed
from tests.fakes import FakeClock


def pattern(name: str = "docs", *, auto: bool = True, risk: RiskBand | None = "LOW") -> NewPattern:
    return NewPattern(
        name=name,
        operation="file_edit",
        scope_regex="/srv/docs/.*",
        risk_level=risk,
        auto_approve=auto,
        created_by="operator",
    )


def only(store: Store) -> PatternRow:
    (found,) = store.patterns()
    return found


def test_a_pattern_comes_back_as_it_was_added(store: Store) -> None:
    number = store.add_pattern(pattern())
    assert only(store) == PatternRow(
        id=number,
        name="docs",
        operation="file_edit",
        scope_regex="/srv/docs/.*",
        session_type=None,
        risk_level="LOW",
        auto_approve=True,
        created_by="operator",
        usage_count=0,
        success_rate=1.0,
    )


def test_there_is_one_pattern_of_a_name(store: Store) -> None:
    store.add_pattern(pattern())
    with pytest.raises(StoreError, match="'docs' already"):
        store.add_pattern(pattern(auto=False))
    assert only(store).auto_approve


def test_a_pattern_can_be_disabled_and_enabled(store: Store) -> None:
    store.add_pattern(pattern())
    assert store.disable_pattern("docs")
    assert not only(store).auto_approve
    assert store.enable_pattern("docs")
    assert only(store).auto_approve
    assert not store.disable_pattern("none")
    assert not store.enable_pattern("none")


@pytest.mark.parametrize("risk", ["HIGH", "CRITICAL"])
def test_a_pattern_never_approves_high_risk(store: Store, risk: RiskBand) -> None:
    with pytest.raises(ValueError, match="never approves"):
        pattern(risk=risk)
    store.add_pattern(pattern(auto=False, risk=risk))
    assert not store.enable_pattern("docs")
    assert not only(store).auto_approve


@pytest.mark.parametrize("regex", ["(", "a" * 5000, "*"])
def test_a_scope_that_is_no_expression_is_refused(regex: str) -> None:
    with pytest.raises(ValueError, match="scope_regex"):
        NewPattern(name="a", operation="b", scope_regex=regex, created_by="c")


def test_a_pattern_needs_a_name_and_an_operation() -> None:
    for name, operation in ((" ", "b"), ("a", "")):
        with pytest.raises(ValueError, match="name and an operation"):
            NewPattern(name=name, operation=operation, scope_regex=None, created_by="c")


@pytest.mark.requirement("B-144", "B-145")
def test_uses_are_counted_and_outcomes_make_the_rate(store: Store) -> None:
    number = store.add_pattern(pattern())
    rates = []
    for succeeded in (True, True, False, True):
        identifier = auto_approved(store, interaction(status="auto_approved", pattern=number))
        assert use_pattern(store, number)
        store.record_outcome(identifier, succeeded=succeeded)
        rates.append(only(store).success_rate)
    assert rates == pytest.approx([1.0, 1.0, 2 / 3, 3 / 4])
    assert only(store).usage_count == 4
    assert not use_pattern(store, 4711)


def test_an_outcome_counts_once_and_only_for_the_pattern_that_approved(store: Store) -> None:
    number = store.add_pattern(pattern())
    use_pattern(store, number)
    by_reviewer = reviewed(store, interaction(pattern=number))
    store.record_outcome(by_reviewer, succeeded=False)
    assert only(store).success_rate == 1.0
    identifier = auto_approved(store, interaction(status="auto_approved", pattern=number))
    for succeeded in (True, False, False):
        store.record_outcome(identifier, succeeded=succeeded)
    assert only(store).success_rate == 1.0


# --- approve rates -------------------------------------------------------------------------------


@pytest.mark.requirement("B-170")
def test_rates_come_from_people_and_reviewers_alone(store: Store) -> None:
    for by in ("human", "reviewer:a", "reviewer:b"):
        reviewed(store, end=ends("approved", by))
    reviewed(store, end=ends("rejected", "human"))
    reviewed(store, end=ends("rejected", "timeout"))
    for by in ("engine:pattern", "auto-approver", "grant:1", "reviewers", "humane"):
        reviewed(store, end=ends("approved", by))
    auto_approved(store)
    reviewed(store, interaction(operation="git_push", scope=None))
    assert store.learned().rates == {
        ("file_edit", "/srv/app/docs/a.md"): ApproveRate(3, 4),
        ("git_push", ""): ApproveRate(1, 1),
    }


# --- proposals -----------------------------------------------------------------------------------


def approved_in(store: Store, *scopes: str, operation: str = "file_edit", times: int = 1) -> int:
    """How many interactions were made."""
    made = [
        reviewed(store, interaction(scope=scope, operation=operation)) for scope in scopes * times
    ]
    return len(made)


def test_enough_approvals_in_a_directory_are_proposed(store: Store) -> None:
    approved_in(store, "/srv/app/docs/a.md", "/srv/app/docs/b.md", times=2)
    reviewed(store, interaction(scope="/srv/app/docs/c.md", session="s2", band="MEDIUM"))
    (found,) = store.propose_patterns(4)
    assert found.name == "file_edit in /srv/app/docs"
    assert (found.operation, found.session_type) == ("file_edit", None)
    assert found.scope_regex == "/srv/app/docs/.*"
    assert (found.approved, found.rejected, found.sessions) == (5, 0, 2)
    assert found.risk_level == "MEDIUM"
    assert store.patterns() == ()


NOTHING: dict[str, Callable[[Store], object]] = {
    "too few": lambda s: approved_in(s, "/srv/app/a.md", times=3),
    "another operation each": lambda s: [
        approved_in(s, "/srv/app/a.md", operation=f"op{n}", times=2) for n in range(3)
    ],
    "no path": lambda s: approved_in(s, "origin feature/x", times=9),
    "a path that is not canonical": lambda s: approved_in(s, "/srv/app/../x/a.md", times=9),
    "a path with a line's end": lambda s: approved_in(s, "/srv/app\n/a.md", times=9),
    "the top of the disk": lambda s: approved_in(s, "/a.md", "/b/c.md", times=9),
    "a whole home": lambda s: approved_in(s, "/home/me/a.md", "/Users/me/b.md", times=9),
    "a path too long for a pattern": lambda s: approved_in(s, f"/srv/{'x' * 520}/a", times=9),
    "a refusal": lambda s: (
        approved_in(s, "/srv/app/a.md", times=9),
        reviewed(s, interaction(scope="/srv/app/deep/b.md"), ends("rejected")),
    ),
    "high risk": lambda s: [
        reviewed(s, interaction(scope="/srv/app/a.md", band="HIGH")) for _ in range(9)
    ],
    "once of high risk": lambda s: (
        approved_in(s, "/srv/app/a.md", times=9),
        reviewed(s, interaction(scope="/srv/app/b.md", band="CRITICAL")),
    ),
    "no band": lambda s: [
        reviewed(s, interaction(scope="/srv/app/a.md", band=None)) for _ in range(9)
    ],
    "the engine's own approvals": lambda s: [
        auto_approved(s, interaction(status="auto_approved")) for _ in range(9)
    ],
    "approvals by the clock": lambda s: [
        reviewed(s, end=ends("approved", "timeout")) for _ in range(9)
    ],
}


@pytest.mark.parametrize("fill", NOTHING.values(), ids=NOTHING.keys())
def test_nothing_is_proposed_on(sqlite_store: Store, fill: Callable[[Store], object]) -> None:
    fill(sqlite_store)
    assert sqlite_store.propose_patterns(4) == []


def test_the_deepest_directory_with_enough_evidence_is_proposed(store: Store) -> None:
    approved_in(store, "/srv/app/docs/a.md", times=4)
    approved_in(store, "/srv/app/one/a", "/srv/app/two/b", times=2)
    found = {one.directory: one.approved for one in store.propose_patterns(4)}
    assert found == {"/srv/app/docs": 4, "/srv/app": 4}


def test_a_directory_is_not_another_whose_name_begins_alike(sqlite_store: Store) -> None:
    approved_in(sqlite_store, "/srv/app/a.md", times=3)
    approved_in(sqlite_store, "/srv/apple/a.md")
    reviewed(sqlite_store, interaction(scope="/srv/apple/b.md"), ends("rejected"))
    assert sqlite_store.propose_patterns(4) == []
    assert [one.directory for one in sqlite_store.propose_patterns(3)] == ["/srv/app"]


def test_proposals_keep_session_types_apart(store: Store) -> None:
    for kind in ("worker", "manager"):
        for _ in range(2):
            reviewed(store, interaction(session_type=kind))
    assert store.propose_patterns(3) == []
    reviewed(store, interaction(session_type="worker"))
    (found,) = store.propose_patterns(3)
    assert (found.session_type, found.name) == ("worker", "worker file_edit in /srv/app/docs")


def test_a_promoted_proposal_approves_and_is_not_proposed_again(store: Store) -> None:
    approved_in(store, "/srv/app/docs/a.md", times=4)
    (proposal,) = store.propose_patterns(4)
    store.promote(proposal, "operator")
    made = only(store)
    assert (made.auto_approve, made.created_by) == (True, "operator")
    assert (made.scope_regex, made.risk_level) == ("/srv/app/docs/.*", "LOW")
    assert store.propose_patterns(4) == []


def test_without_evidence_there_is_nothing_to_ask_for(store: Store) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        store.propose_patterns(0)


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="/"),
    min_size=1,
    max_size=8,
).filter(lambda name: name not in {".", ".."})


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(directory=st.lists(NAMES, min_size=2, max_size=4), name=NAMES, other=NAMES)
def test_a_proposal_matches_what_lies_in_its_directory_and_nothing_beside(
    tmp_path_factory: pytest.TempPathFactory, directory: list[str], name: str, other: str
) -> None:
    place = "/srv/" + "/".join(directory)
    where: Path = tmp_path_factory.mktemp("state")
    with open_store(None, where, FakeClock()) as store:
        approved_in(store, f"{place}/{name}", times=2)
        (proposal,) = store.propose_patterns(2)
    matches = re.compile(proposal.scope_regex).fullmatch
    assert matches(f"{place}/{name}")
    assert matches(f"{place}/{other}/{name}")
    assert not matches(place)
    assert not matches(f"{place}{other}/{name}")
    assert not matches(f"/other{place}/{name}")
    assert not matches(f"{place}/{name}\nx")
