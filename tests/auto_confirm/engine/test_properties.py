"""Theorems about the engine, on a small world in which everything comes up."""

from typing import Final

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import (
    EngineDecision,
    assess,
    decide,
    evaluate,
)
from ironcurtain_proxy.auto_confirm.engine.interaction import (
    ApproveRate,
    Interaction,
    Knowledge,
    WorkContext,
    context_score,
)
from ironcurtain_proxy.auto_confirm.engine.settings import AutoConfirmSettings, SafetyRule
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.values import Json, RealPath
from tests.architecture.no_io import no_io
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import MIDNIGHT, NOON, SAFE_PATHS, WORKSPACE, follows
from tests.examples import examples

SEVERITY: Final = {"approve": 0, "conditional": 1, "escalate": 2, "held": 3}

CALLS: Final = (
    calls.read("/srv/project/a"), calls.read("/srv/project/.env"), calls.read("/home/ann/a"),
    calls.edit("/tmp/a"), calls.edit("/srv/project/a"), calls.edit("/srv/other/a"),
    calls.delete(), calls.delete("/etc/a"), calls.fetch(), calls.fetch("localhost"),
    calls.git("git_pull"), calls.git("git_commit"), calls.git("git_reset"),
    replace(calls.git("git_commit"), branch="main"),
    calls.push(), calls.push(branch="main"), calls.git("git_push", force=True),
    calls.shell("safe"), calls.shell("rm"), calls.shell("dd"), calls.shell("install"),
    calls.shell("test"), calls.shell("deploy"), calls.shell("other"), calls.query(),
    calls.strange("/srv/project/a"), calls.strange("/etc/a"),
)  # fmt: skip

EVIDENCE = ApproveRate(approved=50, decided=50)
RATES: Final = {
    (found.operation, found.scope): EVIDENCE
    for found in (assess(call, calls.ON, calls.CALM).subject for call in CALLS)
}
CONTEXT: Final = context_score(
    required=WorkContext(directory=WORKSPACE), actual=WorkContext(directory=WORKSPACE)
)


@st.composite
def interactions(draw: st.DrawFn) -> Interaction:
    """A call, and everything about its session that matters."""
    session_types = ("worker", "worker", "manager", "architect", "high-level", "codex", "unknown")
    found = replace(
        draw(st.sampled_from(CALLS)),
        session_type=draw(st.sampled_from(session_types)),
        sandboxed=draw(st.booleans()),
        snapshot=draw(st.booleans()),
        provider_mismatch=draw(st.integers(0, 9)) == 0,
        unusual=draw(st.integers(0, 9)) == 0,
    )
    return replace(found, context=CONTEXT) if draw(st.booleans()) else found


@st.composite
def knowledge(draw: st.DrawFn) -> Knowledge:
    """Often with everything that could speak for a call."""
    approving = tuple(
        calls.pattern(name, ".*", auto_approve=draw(st.booleans()))
        for name in ("read", "edit", "delete", "network", "git-push", "unknown")
    )
    return Knowledge(
        moment=draw(st.sampled_from((NOON, NOON, MIDNIGHT))),
        patterns=draw(st.sampled_from(((), approving))),
        safe_paths=draw(st.sampled_from(((), SAFE_PATHS))),
        approve_rates=draw(st.sampled_from(({}, RATES))),
        queue_depth=draw(st.sampled_from((0, 10, 11, 99))),
        health=draw(st.sampled_from(("well", "well", "normal", "stuck", "failing", "unknown"))),
        earlier_failures=draw(st.integers(0, 3)),
        context_similarity=draw(st.sampled_from((100, 70, 69))),
        testing=draw(st.booleans()),
        deployment=draw(st.integers(0, 9)) == 0,
    )


RULES: Final = st.sampled_from(
    (
        (),
        (SafetyRule(pattern="git_push_feature", action="auto_approve"),),
        (SafetyRule(pattern="file_edit_in_project", action="conditional"),),
        (SafetyRule(pattern="network", action="escalate"),),
    )
)
CONFIGURED: Final = st.builds(
    AutoConfirmSettings,
    enabled=st.just(value=True),
    safety_rules=RULES,
    load_relief=st.booleans(),
    unknown=st.sampled_from(("escalate", "conditional")),
)
FAST: Final = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def severity(decision: EngineDecision) -> int:
    return SEVERITY[decision.action]


@FAST
@given(interactions(), CONFIGURED, knowledge(), st.integers(0, 100), st.integers(0, 100))
@pytest.mark.requirement("B-171")
def test_a_higher_risk_never_moves_a_call_towards_approval(
    call: Interaction, config: AutoConfirmSettings, known: Knowledge, one: int, other: int
) -> None:
    found = assess(call, config, known)
    low, high = (
        decide(replace(found, risk=replace(found.risk, hundredths=risk)))
        for risk in sorted((one, other))
    )
    assert severity(low) <= severity(high)


@FAST
@given(interactions(), CONFIGURED, knowledge())
@pytest.mark.requirement("B-171")
def test_a_session_that_gets_worse_is_never_approved_more(
    call: Interaction, config: AutoConfirmSettings, known: Knowledge
) -> None:
    known = replace(known, health="normal" if known.health != "well" else "well")
    before = evaluate(call, config, known)
    worse = replace(known, earlier_failures=known.earlier_failures + 1)
    for health in ("failing", "stuck", "unknown"):
        assert severity(before) <= severity(evaluate(call, config, replace(worse, health=health)))
    assert before.risk <= evaluate(call, config, worse).risk


@FAST
@given(interactions(), CONFIGURED, knowledge())
@pytest.mark.requirement("B-176", "B-92", "B-93", "B-3")
def test_what_the_matrix_escalates_or_is_risky_is_never_approved(
    call: Interaction, config: AutoConfirmSettings, known: Knowledge
) -> None:
    found = assess(call, config, known)
    decision = decide(found)
    rows = [row for row in found.rows if row is not None]
    if decision.risk > 70 or any(row.action.startswith("Escalate") for row in rows):
        assert not decision.approves
    if decision.verdict == "escalate" or call.session_type == "unknown":
        assert not decision.approves


@FAST
@given(interactions(), CONFIGURED, knowledge())
@pytest.mark.requirement("B-1", "B-88", "X-7")
def test_every_call_is_approved_or_has_an_owner_that_is_not_itself(
    call: Interaction, config: AutoConfirmSettings, known: Knowledge
) -> None:
    decision = evaluate(call, config, known)
    assert decision.action in SEVERITY
    assert decision.approves == (decision.target is None)
    assert call.session not in (decision.target, decision.fallback)
    if decision.action == "conditional":
        assert call.sandboxed
        assert call.snapshot
    if not decision.approves:
        assert decision.priority in (8, 9, 10)


@FAST
@given(interactions(), CONFIGURED, knowledge())
@pytest.mark.requirement("B-87", "B-168")
def test_the_same_input_gives_the_same_record_without_any_io(
    call: Interaction, config: AutoConfirmSettings, known: Knowledge
) -> None:
    with no_io():
        decision = evaluate(call, config, known)
    assert evaluate(replace(call), replace(config), replace(known)) == decision
    assert follows(decision)


WORDS: Final = st.sampled_from(
    (
        *("safe", "test", "read", "approved", "auto_approve", "feature/x", "worker", "high-level"),
        *("localhost", "/tmp/a", "sandboxed", "well", "low", "ls", "SAFE", "dry_run", "true"),
    )
)
VALUES: Final[st.SearchStrategy[Json]] = st.one_of(
    WORDS, st.booleans(), st.none(), st.integers(-1, 2), st.lists(WORDS, max_size=2)
)
NAMES: Final = st.one_of(
    WORDS,
    st.sampled_from(
        (
            *("operation", "command_operation", "session_type", "_meta", "risk", "sandboxed"),
            *("force", "action", "mode", "target", "environment", "ref", "health", "branch"),
        )
    ),
)


@FAST
@given(interactions(), CONFIGURED, knowledge(), st.dictionaries(NAMES, VALUES, max_size=3))
@pytest.mark.requirement("X-10")
def test_no_word_that_an_agent_adds_makes_things_better(
    call: Interaction, config: AutoConfirmSettings, known: Knowledge, words: dict[str, Json]
) -> None:
    added = {name: value for name, value in words.items() if name not in call.arguments}
    assume(added)
    before = evaluate(call, config, known)
    after = evaluate(replace(call, arguments={**call.arguments, **added}), config, known)
    assert before.risk <= after.risk
    assert severity(before) <= severity(after)


@FAST
@given(
    interactions(),
    CONFIGURED,
    knowledge(),
    st.sampled_from(("/tmp/a", "/srv/project/a", "/etc/a", "/home/ann/.netrc")),
    st.sampled_from(("read-path", "write-path", "delete-path")),
)
@pytest.mark.requirement("X-10")
def test_another_thing_that_a_call_touches_never_makes_it_less_risky(
    call: Interaction, config: AutoConfirmSettings, known: Knowledge, path: str, role: ArgumentRole
) -> None:
    more = calls.path_fact("more", path, roles=(role,))
    request = replace(call.request, arguments=(*call.request.arguments, more))
    before = evaluate(call, config, known)
    after = evaluate(replace(call, request=request), config, known)
    assert before.risk <= after.risk
    assert severity(before) <= severity(after)


@FAST
@given(interactions(), knowledge())
@pytest.mark.requirement("B-151", "X-3")
def test_switched_off_it_approves_nothing(call: Interaction, known: Knowledge) -> None:
    assert not evaluate(call, AutoConfirmSettings(), known).approves


def test_the_world_of_these_theorems_has_every_outcome() -> None:
    guarded = replace(calls.edit("/srv/other/a"), sandboxed=True, snapshot=True)
    well = replace(calls.CALM, health="well")
    found = [evaluate(call, calls.ON, well) for call in (*CALLS, guarded)]
    assert {decision.action for decision in found} == set(SEVERITY)
    assert {decision.band for decision in found} == {"LOW", "MEDIUM", "HIGH", "CRITICAL"}
    assert RealPath.from_text("/srv/project") == WORKSPACE
