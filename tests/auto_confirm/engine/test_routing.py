"""Who reviews, and that it is never the one who asks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import assess
from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction
from ironcurtain_proxy.auto_confirm.engine.risk import Route, route_of
from ironcurtain_proxy.auto_confirm.engine.settings import (
    AutoConfirmSettings,
    EscalationTargets,
    ReviewerSetting,
    SafetyRule,
)
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import CALM, ON, decided
from tests.tables import table

STAFF = (
    ReviewerSetting(name="architect_manager", session="a-1", session_type="architect"),
    ReviewerSetting(name="wrapper_claude", session="m-1", session_type="manager"),
    ReviewerSetting(name="claude_code_high_level", session="h-1", session_type="high-level"),
)
STAFFED = replace(ON, reviewers=STAFF)


def route(interaction: Interaction, risk: int) -> Route:
    return route_of(interaction, assess(interaction, ON, CALM).subject, risk, ON)


@pytest.mark.requirement("B-50", "B-52", "B-54", "B-105", "B-106", "B-107")
@pytest.mark.parametrize(
    ("risk", "target", "priority"),
    table("auto_confirm/engine/routing.the_risk_says_who_reviews", list[tuple[int, str, int]]),
)
def test_the_risk_says_who_reviews(risk: int, target: str, priority: int) -> None:
    found = route(calls.fetch(), risk)
    assert (found.target, found.priority) == (target, priority)


@pytest.mark.requirement("B-49", "B-51", "B-105")
@pytest.mark.parametrize(
    "interaction",
    [
        calls.delete(),
        calls.git("git_push", force=True),
        calls.shell("deploy"),
        replace(calls.fetch(), session_type="codex"),
        calls.strange("/srv/project/a"),
        replace(calls.fetch(), session_type="unknown"),
    ],
)
def test_some_calls_are_the_architect_s_at_any_risk(interaction: Interaction) -> None:
    assert route(interaction, 50).target == "architect_manager"


@pytest.mark.requirement("B-8")
def test_another_provider_is_the_wrapper_s_until_the_risk_is_high() -> None:
    odd = replace(calls.fetch(), provider_mismatch=True)
    assert route(odd, 30) == Route(target="wrapper_claude", priority=8)
    assert route(odd, 71).target == "architect_manager"


@pytest.mark.requirement("B-153", "B-154")
def test_the_names_are_the_configuration_s() -> None:
    targets = EscalationTargets(high_risk="boss", medium_risk="lead")
    settings = replace(ON, escalation_targets=targets)
    assert decided(calls.delete(), settings).target == "boss"
    assert decided(calls.fetch(), settings).target == "lead"


@pytest.mark.requirement("B-99", "X-7")
def test_a_target_that_asks_itself_moves_to_the_fallback() -> None:
    own = replace(calls.delete(), session="architect_manager", session_type="architect")
    assert decided(own).target == "claude_code_high_level"
    by_session = replace(own, session="a-1")
    assert decided(by_session, STAFFED).target == "claude_code_high_level"


@pytest.mark.requirement("X-7")
def test_where_nobody_else_is_left_a_person_decides() -> None:
    settings = replace(ON, fallback_escalation="architect_manager")
    own = replace(calls.delete(), session="architect_manager", session_type="architect")
    decision = decided(own, settings)
    assert (decision.target, decision.fallback) == ("human", None)


@pytest.mark.requirement("B-60", "B-163", "B-169")
def test_the_fallback_stands_behind_the_target_once() -> None:
    decision = decided(calls.fetch(), STAFFED)
    assert (decision.target, decision.fallback) == ("wrapper_claude", "claude_code_high_level")
    same = replace(ON, fallback_escalation="wrapper_claude")
    assert decided(calls.fetch(), same).fallback is None


@pytest.mark.requirement("B-109", "B-157")
def test_a_rule_names_its_target_unless_that_one_may_not_review() -> None:
    rule = SafetyRule(pattern="git_delete_force", action="escalate", target="wrapper_claude")
    settings = replace(ON, safety_rules=(rule,))
    forced = calls.git("git_push", force=True)
    decision = decided(forced, settings)
    assert decision.reason == "Safety rule requires escalation: git_delete_force"
    assert decision.target == "wrapper_claude"
    # A manager may not decide about a force-push.
    staffed = replace(settings, reviewers=STAFF)
    assert decided(forced, staffed).target == "claude_code_high_level"
    assert decided(forced, replace(staffed, safety_rules=())).target == "architect_manager"


def test_a_person_may_review_everything() -> None:
    staff = (ReviewerSetting(name="architect_manager", kind="human"),)
    assert decided(calls.delete(), replace(ON, reviewers=staff)).target == "architect_manager"
    process = (ReviewerSetting(name="architect_manager"),)
    decision = decided(calls.delete(), replace(ON, reviewers=process))
    assert decision.target == "claude_code_high_level"


def test_a_rule_without_a_target_goes_where_high_risk_goes() -> None:
    rule = SafetyRule(pattern="network", action="escalate")
    decision = decided(calls.fetch(), replace(ON, safety_rules=(rule,)))
    assert decision.reason == "Safety rule requires escalation: network"
    assert decision.target == "architect_manager"


@pytest.mark.requirement("B-152")
def test_without_intelligent_escalation_a_person_reviews_everything() -> None:
    settings = replace(STAFFED, intelligent_escalation=False)
    assert decided(calls.delete(), settings).target == "human"
    assert decided(calls.read("/srv/project/a"), settings).approves


@pytest.mark.requirement("X-7", "B-99")
@given(
    session=st.sampled_from(
        ["architect_manager", "wrapper_claude", "claude_code_high_level", "a-1", "m-1", "h-1", "w"]
    ),
    interaction=st.sampled_from(
        [calls.delete(), calls.fetch(), calls.shell("deploy"), calls.strange("/a")]
    ),
    settings=st.sampled_from([ON, STAFFED]),
    fallback=st.sampled_from(["architect_manager", "wrapper_claude", "claude_code_high_level"]),
)
def test_whoever_asks_is_never_asked(
    session: str, interaction: Interaction, settings: AutoConfirmSettings, fallback: str
) -> None:
    settings = replace(settings, fallback_escalation=fallback)
    decision = decided(replace(interaction, session=session), settings)
    sessions = {reviewer.name: reviewer.session for reviewer in settings.reviewers}
    for name in (decision.target, decision.fallback):
        assert name != session
        assert sessions.get(name or "") != session


@pytest.mark.requirement("X-7")
def test_a_reviewer_without_a_session_of_its_own_is_a_party_by_its_name() -> None:
    """Left out or empty, its session is its name: never the session that no call knows."""
    for session in (None, ""):
        staff = (
            ReviewerSetting(name="architect_manager", session=session, session_type="architect"),
        )
        settings = replace(ON, reviewers=staff)
        unnamed = replace(calls.delete(), session=session or "")
        assert decided(unnamed, settings).target == "architect_manager"
        own = replace(calls.delete(), session="architect_manager")
        assert decided(own, settings).target == "claude_code_high_level"
