"""The order of the checks, every branch of it, and every reason in the document's words."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import (
    CHECKS,
    assess,
    decide,
    evaluate,
    on_timeout,
)
from ironcurtain_proxy.auto_confirm.engine.interaction import (
    ApproveRate,
    ContextScore,
    Interaction,
    Knowledge,
    OperationKind,
    SessionHealth,
    WorkContext,
    context_score,
)
from ironcurtain_proxy.auto_confirm.engine.settings import (
    AutoConfirmSettings,
    NightMode,
    SafetyRule,
)
from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.decision import Engine
from ironcurtain_proxy.model.values import RealPath
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import CALM, MIDNIGHT, NOON, ON, SAFE_PATHS, decided

NIGHT = replace(CALM, moment=MIDNIGHT)
TRUSTED = ApproveRate(approved=40, decided=40)
ELSEWHERE = calls.edit("/srv/other/a")
"""No row speaks of it; its risk is 0.6."""
PLAIN = calls.strange("/srv/project/a")


def sure() -> Knowledge:
    """What makes the engine 90 % confident of `ELSEWHERE`: known, and usually approved."""
    known = calls.pattern("edit", "/srv/other/.*", auto_approve=False)
    return replace(CALM, patterns=(known,), approve_rates={("edit", "/srv/other/a"): TRUSTED})


def in_context(interaction: Interaction, *, branch: str = "feature/x") -> Interaction:
    here = RealPath.from_text("/srv/project")
    required = WorkContext(directory=here, branch="feature/x")
    actual = WorkContext(directory=here, branch=branch)
    return replace(interaction, context=context_score(required=required, actual=actual))


def low() -> Interaction:
    """A call of low risk, which a rule approves unless the settings are `OPEN`."""
    return calls.edit("/srv/project/a")


OPEN = replace(ON, safety_rules=(SafetyRule(pattern="file_edit_in_project", action="conditional"),))
"""The operator wants edits in the project looked at, not waved through."""


@pytest.mark.requirement("B-151")
def test_it_approves_nothing_unless_it_is_switched_on() -> None:
    decision = decided(calls.read("/srv/project/a"), AutoConfirmSettings())
    assert (decision.action, decision.reason) == ("escalate", "Auto-confirm is off")
    assert decided(calls.read("/srv/project/a"), ON).approves


def test_what_nothing_escalated_is_not_its_business() -> None:
    with pytest.raises(KernelError):
        decided(replace(calls.read("/srv/project/a"), origins=()))


@pytest.mark.requirement("B-5", "B-16", "B-91")
def test_an_exact_pattern_approves_at_once() -> None:
    knowledge = replace(NIGHT, patterns=(calls.pattern("edit", "/srv/other/[^/]+"),))
    decision = decided(ELSEWHERE, ON, knowledge)
    assert (decision.action, decision.reason) == ("approve", "Exact pattern match")
    assert decision.decided_by == Engine("pattern")
    assert not decided(calls.edit("/srv/other/b/c"), ON, knowledge).approves


@pytest.mark.parametrize(
    ("interaction", "scope"),
    [(calls.delete(), ".*"), (calls.push(branch="main"), ".*"), (calls.strange("/tmp/a"), ".*")],
)
@pytest.mark.requirement("B-22", "B-23", "B-92")
def test_a_pattern_does_not_outweigh_a_rule_that_escalates(
    interaction: Interaction, scope: str
) -> None:
    names: tuple[OperationKind, ...] = ("delete", "git-push", "unknown")
    patterns = tuple(calls.pattern(name, scope) for name in names)
    decision = decided(interaction, ON, replace(CALM, patterns=patterns))
    assert decision.action == "escalate"
    assert decision.check != "pattern"


def test_neither_row_pattern_nor_window_approves_a_file_on_which_programs_act() -> None:
    edit = calls.edit("/srv/project/.git/hooks/pre-commit")
    assert decided(edit, ON, CALM).approves
    patterns = (calls.pattern("edit", "/srv/project/.*"),)
    lenient = replace(ON, on_timeout={"edit": "approve"})
    for known in (CALM, replace(CALM, patterns=patterns), replace(CALM, testing=True)):
        decision = decided(replace(edit, acts_by_itself=True, snapshot=True), ON, known)
        assert decision.action == "escalate"
        assert on_timeout(decision, lenient, policy_critical=False) == "deny"


@pytest.mark.requirement("B-92")
def test_a_pattern_does_not_outweigh_a_rule_of_the_operator() -> None:
    knowledge = replace(CALM, patterns=(calls.pattern("network", "https://.*"),))
    rule = SafetyRule(pattern="network", action="escalate")
    decision = decided(calls.fetch(), replace(ON, safety_rules=(rule,)), knowledge)
    assert decision.reason == "Safety rule requires escalation: network"


def test_a_pattern_does_not_outweigh_a_high_risk() -> None:
    interaction = calls.fetch("prod.example.org")
    knowledge = replace(CALM, patterns=(calls.pattern("network", "https://.*"),))
    assert decided(interaction, ON, knowledge).approves
    worse = replace(interaction, arguments={**interaction.arguments, "method": "DELETE"})
    assert decided(worse, ON, knowledge).reason == "High risk"


@pytest.mark.requirement("B-17", "B-18", "B-19", "B-20", "B-2", "B-167", "B-108")
@pytest.mark.parametrize(
    ("interaction", "name"),
    [
        (calls.edit("/tmp/a"), "File edit in /tmp/"),
        (calls.read("/home/ann/notes.txt"), "File read (public)"),
        (calls.git("git_pull"), "Git pull/fetch"),
        (calls.git("git_fetch"), "Git pull/fetch"),
        (calls.git("git_commit", message="m"), "Git commit to feature/*"),
        (calls.shell("safe"), "Shell exec (safe)"),
    ],
)
def test_what_the_document_calls_safe_is_approved(interaction: Interaction, name: str) -> None:
    decision = decided(interaction)
    assert (decision.action, decision.reason) == ("approve", f"Safety rule: {name}")


@pytest.mark.requirement("B-7", "B-22", "B-23", "B-24", "B-92", "B-109")
@pytest.mark.parametrize(
    ("interaction", "name"),
    [
        (calls.delete(), "File delete"),
        (calls.shell("git-force-push"), "Git push --force"),
        (calls.shell("rm"), "Shell exec (rm)"),
        (calls.shell("dd"), "Shell exec (dd, mount)"),
        (calls.shell("git-push"), "Git push to main"),
    ],
)
def test_what_the_document_calls_risky_is_escalated(interaction: Interaction, name: str) -> None:
    decision = decided(interaction)
    assert decision.reason == f"Safety rule requires escalation: {name}"
    assert decision.target == "architect_manager"


@pytest.mark.requirement("B-3", "B-42", "B-93")
def test_a_high_risk_escalates_where_no_rule_does() -> None:
    interaction = replace(calls.fetch("prod.example.org"), arguments={"method": "purge"})
    decision = decided(interaction)
    assert (decision.risk, decision.action, decision.reason) == (75, "escalate", "High risk")
    assert (decision.target, decision.priority) == ("architect_manager", 9)


@pytest.mark.requirement("B-43", "B-79")
def test_a_critical_risk_is_held_with_an_alert() -> None:
    decision = decided(calls.shell("deploy"))
    assert (decision.action, decision.alert, decision.priority) == ("held", True, 10)
    assert decision.band == "CRITICAL"


@pytest.mark.requirement("B-6", "B-44", "B-94")
def test_high_confidence_approves_low_risk() -> None:
    known = calls.pattern("edit", "/srv/project/.*", auto_approve=False)
    knowledge = replace(CALM, patterns=(known,), safe_paths=SAFE_PATHS)
    decision = decided(low(), OPEN, knowledge)
    assert (decision.action, decision.reason) == ("approve", "High confidence (85%)")
    less = replace(knowledge, context_similarity=69)
    assert decided(low(), OPEN, less).reason == "Uncertain case (confidence=70%, risk=30%)"


@pytest.mark.requirement("B-94", "B-95")
def test_eighty_percent_is_not_sure_enough() -> None:
    found = assess(low(), OPEN, CALM)
    for hundredths, check in ((80, "default"), (81, "confidence")):
        sure_of = replace(found, confidence=replace(found.confidence, hundredths=hundredths))
        assert decide(sure_of).check == check
    for earned, check in ((80, "default"), (81, "context")):
        assert decide(replace(found, context=ContextScore(earned, 100))).check == check


@pytest.mark.requirement("B-41", "B-93")
@pytest.mark.parametrize(
    ("hundredths", "action"),
    [(40, "approve"), (41, "conditional"), (70, "conditional"), (71, "escalate"), (91, "held")],
)
def test_the_bands_decide_at_their_very_edges(hundredths: int, action: str) -> None:
    guarded = replace(in_context(low()), sandboxed=True, snapshot=True)
    found = assess(guarded, OPEN, CALM)
    decision = decide(replace(found, risk=replace(found.risk, hundredths=hundredths)))
    assert decision.action == action


@pytest.mark.requirement("B-41", "B-94")
def test_high_confidence_approves_medium_risk_only_with_safeguards() -> None:
    knowledge = sure()
    bare = decided(ELSEWHERE, ON, knowledge)
    assert (bare.action, bare.target, bare.priority) == ("escalate", "wrapper_claude", 8)
    guarded = decided(replace(ELSEWHERE, sandboxed=True, snapshot=True), ON, knowledge)
    assert (guarded.action, guarded.reason) == ("conditional", "High confidence (90%)")
    assert guarded.safeguards == ("sandbox", "rollback", "logging", "monitoring")
    half = replace(ELSEWHERE, sandboxed=True)
    assert decided(half, ON, knowledge).action == "escalate"


@pytest.mark.requirement("B-26", "B-95")
def test_a_context_that_matches_approves_low_risk() -> None:
    decision = decided(in_context(low()), OPEN)
    assert (decision.action, decision.reason) == ("approve", "Context match 100%")
    medium = in_context(ELSEWHERE)
    assert decided(medium).action == "escalate"
    assert decided(replace(medium, sandboxed=True, snapshot=True)).action == "conditional"


@pytest.mark.requirement("B-27", "B-28")
def test_a_context_that_matches_in_part_escalates() -> None:
    decision = decided(in_context(low(), branch="main"), OPEN)
    assert (decision.context_score, decision.action) == (76, "escalate")


@pytest.mark.requirement("B-29", "B-96")
def test_at_night_what_is_left_goes_to_the_architect() -> None:
    decision = decided(low(), OPEN, replace(NIGHT, health="well", testing=True))
    assert decision.reason == "Night mode - escalating for safety"
    assert (decision.action, decision.target) == ("escalate", "architect_manager")
    hold = replace(OPEN, night_mode=NightMode(action="hold"))
    assert decided(low(), hold, NIGHT).action == "held"
    off = replace(OPEN, night_mode=NightMode(enabled=False))
    assert decided(low(), off, NIGHT).check == "default"


def test_the_night_undoes_no_evidence_that_came_before() -> None:
    assert decided(low(), ON, NIGHT).reason == "Safety rule: File edit in project dir"
    assert decided(in_context(low()), OPEN, NIGHT).reason == "Context match 100%"


@pytest.mark.requirement("B-30")
def test_a_testing_window_approves_low_risk_only() -> None:
    knowledge = replace(CALM, testing=True)
    assert decided(low(), OPEN, knowledge).reason == "Testing window"
    assert decided(ELSEWHERE, ON, knowledge).check == "default"
    assert decided(calls.strange("/srv/project/a"), ON, knowledge).check == "default"


@pytest.mark.requirement("B-31")
def test_a_deployment_holds_everything() -> None:
    knowledge = replace(CALM, deployment=True, patterns=(calls.pattern("read", ".*"),))
    decision = decided(calls.read("/srv/project/a"), ON, knowledge)
    assert (decision.action, decision.check) == ("held", "deployment")
    assert decision.target is not None


@pytest.mark.requirement("B-32", "B-33", "B-97")
def test_a_long_queue_approves_if_the_operator_wants_it_so() -> None:
    relieved = replace(OPEN, load_relief=True)
    for depth, approves in ((2, False), (10, False), (11, True)):
        decision = decided(low(), relieved, replace(CALM, queue_depth=depth))
        assert decision.approves == approves
    long = decided(low(), relieved, replace(CALM, queue_depth=11))
    assert long.reason == "Auto-approve under load (queue=11)"
    assert not decided(low(), OPEN, replace(CALM, queue_depth=11)).approves


@pytest.mark.requirement("B-97")
def test_relief_ends_below_a_risk_of_one_half() -> None:
    relieved, queue = replace(OPEN, load_relief=True), replace(CALM, queue_depth=99)
    below = replace(queue, earlier_failures=2)
    at_45 = replace(calls.edit("/srv/project/a"), arguments={"target": "production"})
    assert decided(at_45, relieved, replace(queue, earlier_failures=1)).risk == 45
    assert decided(at_45, relieved, replace(queue, earlier_failures=1)).approves
    assert decided(at_45, relieved, below).risk == 50
    assert not decided(at_45, relieved, below).approves


@pytest.mark.requirement("B-33")
def test_a_short_queue_undoes_no_approval() -> None:
    assert decided(low(), replace(ON, load_relief=True), replace(CALM, queue_depth=0)).approves


@pytest.mark.requirement("B-37")
def test_a_session_that_does_well_is_approved_at_low_risk() -> None:
    knowledge = replace(CALM, health="well")
    assert decided(low(), OPEN, knowledge).reason == "Session doing well"
    assert decided(ELSEWHERE, ON, knowledge).action == "escalate"
    guarded = replace(ELSEWHERE, sandboxed=True, snapshot=True)
    assert decided(guarded, ON, knowledge).action == "conditional"


@pytest.mark.requirement("B-35", "B-36", "B-38", "B-1")
@pytest.mark.parametrize("health", ["stuck", "failing", "unknown"])
def test_a_session_that_is_stuck_failing_or_unknown_gets_a_reviewer(health: SessionHealth) -> None:
    sick = Knowledge(moment=NOON, health=health, patterns=(calls.pattern("edit", ".*"),))
    decision = decided(calls.edit("/srv/project/a"), ON, sick)
    assert decision.action == "escalate"
    assert decision.target is not None


@pytest.mark.requirement("B-8", "B-34")
@pytest.mark.parametrize("what", ["provider_mismatch", "unusual"])
def test_another_provider_or_an_unusual_call_goes_to_the_wrapper(what: str) -> None:
    odd = (
        replace(calls.edit("/srv/project/a"), provider_mismatch=True)
        if what == "provider_mismatch"
        else replace(calls.edit("/srv/project/a"), unusual=True)
    )
    decision = decided(odd)
    reason = {"provider_mismatch": "Provider mismatch", "unusual": "Unusual pattern"}[what]
    assert (decision.action, decision.reason) == ("escalate", reason)
    assert (decision.target, decision.priority) == ("wrapper_claude", 8)


@pytest.mark.requirement("B-98", "B-52")
def test_what_nothing_speaks_for_is_uncertain() -> None:
    decision = decided(calls.strange("/srv/project/a"))
    assert decision.reason == "Uncertain case (confidence=50%, risk=50%)"
    assert (decision.target, decision.priority) == ("architect_manager", 9)


@pytest.mark.requirement("B-9", "B-98")
def test_an_unknown_operation_is_approved_only_with_everything_in_place() -> None:
    settings = replace(ON, unknown="conditional")
    knowledge = replace(CALM, safe_paths=SAFE_PATHS)
    guarded = replace(PLAIN, sandboxed=True, snapshot=True)
    decision = decided(guarded, settings, knowledge)
    assert (decision.action, decision.risk, decision.confidence) == ("conditional", 35, 65)
    assert decided(guarded, ON, knowledge).action == "escalate"
    assert decided(replace(guarded, snapshot=False), settings, knowledge).action == "escalate"
    assert decided(replace(guarded, sandboxed=False), settings, knowledge).action == "escalate"
    assert decided(guarded, settings, CALM).action == "escalate"
    unlike = replace(knowledge, context_similarity=0)
    assert decided(guarded, settings, unlike).confidence == 50
    assert decided(guarded, settings, unlike).action == "escalate"


def test_an_unknown_operation_needs_sixty_percent() -> None:
    settings = replace(ON, unknown="conditional")
    guarded = replace(PLAIN, sandboxed=True, snapshot=True)
    found = assess(guarded, settings, replace(CALM, safe_paths=SAFE_PATHS))
    for hundredths, action in ((59, "escalate"), (60, "conditional")):
        confidence = replace(found.confidence, hundredths=hundredths)
        assert decide(replace(found, confidence=confidence)).action == action
    for hundredths, action in ((40, "conditional"), (41, "escalate")):
        assert (
            decide(replace(found, risk=replace(found.risk, hundredths=hundredths))).action == action
        )


def test_no_evidence_approves_an_operation_that_is_not_known() -> None:
    rates = {("unknown", "/srv/project/a"): TRUSTED}
    best = replace(CALM, health="well", testing=True, queue_depth=99, approve_rates=rates)
    guarded = replace(in_context(PLAIN), sandboxed=True, snapshot=True)
    assert decided(guarded, replace(ON, load_relief=True), best).action == "escalate"


def test_the_checks_are_asked_in_the_document_s_order() -> None:
    order = [name for name, _ in CHECKS]
    seed = ["pattern", "safety-rule", "risk", "confidence", "context", "night", "load"]
    assert [name for name in order if name in seed] == seed


REASONS: dict[str, Callable[[], str]] = {
    "Exact pattern match": lambda: (
        decided(
            ELSEWHERE, ON, replace(CALM, patterns=(calls.pattern("edit", "/srv/other/a"),))
        ).reason
    ),
    "Safety rule: File edit in /tmp/": lambda: decided(calls.edit("/tmp/a")).reason,
    "Safety rule requires escalation: File delete": lambda: decided(calls.delete()).reason,
    "High confidence (90%)": lambda: (
        decided(replace(ELSEWHERE, sandboxed=True, snapshot=True), ON, sure()).reason
    ),
    "Context match 100%": lambda: decided(in_context(low()), OPEN).reason,
    "Night mode - escalating for safety": lambda: decided(low(), OPEN, NIGHT).reason,
    "Uncertain case (confidence=50%, risk=60%)": lambda: decided(ELSEWHERE).reason,
}


@pytest.mark.parametrize("words", list(REASONS))
@pytest.mark.requirement("B-91", "B-94", "B-95", "B-96", "B-98", "B-108", "B-109")
def test_a_reason_is_in_the_document_s_words(words: str) -> None:
    assert REASONS[words]() == words


def test_a_decision_needs_a_time_with_a_zone() -> None:
    with pytest.raises(KernelError):
        evaluate(PLAIN, ON, replace(CALM, moment=NOON.replace(tzinfo=None)))
