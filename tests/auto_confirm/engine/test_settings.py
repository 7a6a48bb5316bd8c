"""The document's keys and defaults; what makes no sense is refused."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.settings import (
    AutoConfirmSettings,
    EscalationTargets,
    ReviewerSetting,
    RuleAction,
    SafetyRule,
)
from ironcurtain_proxy.errors import ConfigurationError
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import ON, decided


@pytest.mark.requirement("B-151")
def test_it_is_off_unless_switched_on() -> None:
    assert AutoConfirmSettings().enabled is False


@pytest.mark.requirement(
    *("B-152", "B-153", "B-154", "B-155", "B-158", "B-159", "B-160", "B-161", "B-162", "B-163")
)
def test_every_other_default_is_the_document_s() -> None:
    found = AutoConfirmSettings()
    assert found.intelligent_escalation is True
    assert found.escalation_targets == EscalationTargets(
        high_risk="architect_manager", medium_risk="wrapper_claude", low_risk="auto_approve"
    )
    night = found.night_mode
    assert (night.enabled, night.start_hour, night.end_hour) == (True, 21, 6)
    assert night.action == "escalate"
    assert found.escalation_timeout_minutes == 5
    assert found.fallback_escalation == "claude_code_high_level"
    assert (found.load_relief, found.unknown, dict(found.on_timeout)) == (False, "escalate", {})


@pytest.mark.requirement("B-156", "B-108")
def test_a_rule_approves_where_the_matrix_leaves_it_open() -> None:
    rule = SafetyRule(pattern="git_push_feature", action="auto_approve")
    decision = decided(calls.push(), replace(ON, safety_rules=(rule,)))
    assert (decision.action, decision.reason) == ("approve", "Safety rule: git_push_feature")
    assert decided(calls.push()).action == "escalate"


@pytest.mark.requirement("B-156")
def test_a_rule_that_says_what_the_matrix_says_changes_nothing() -> None:
    rule = SafetyRule(pattern="file_edit_in_tmp", action="auto_approve")
    assert decided(calls.edit("/tmp/a"), replace(ON, safety_rules=(rule,))).approves


@pytest.mark.requirement("B-110", "B-111")
def test_a_conditional_rule_takes_an_approval_away_and_no_rule_crashes_nothing() -> None:
    rule = SafetyRule(pattern="shell_safe", action="conditional")
    settings = replace(ON, safety_rules=(rule,))
    assert decided(calls.shell("safe")).check == "safety-rule"
    assert decided(calls.shell("safe"), settings).verdict == "evaluate"
    assert decided(calls.fetch(), settings).verdict == "evaluate"


def test_the_strictest_of_several_rules_counts() -> None:
    actions: tuple[RuleAction, ...] = ("auto_approve", "conditional", "escalate")
    rules = tuple(SafetyRule(pattern="shell_safe", action=action) for action in actions)
    for found in (rules, rules[::-1]):
        settings = replace(ON, safety_rules=found)
        assert decided(calls.shell("safe"), settings).verdict == "escalate"


def test_no_rule_installs_outside_a_sandbox() -> None:
    rule = SafetyRule(pattern="install_dependencies", action="auto_approve")
    assert not decided(calls.shell("install"), replace(ON, safety_rules=(rule,))).approves


@pytest.mark.parametrize(
    ("pattern", "action"),
    [
        ("file_delete", "auto_approve"), ("git_push_force", "conditional"),
        ("deploy_prod", "auto_approve"), ("git_push_main", "auto_approve"),
        ("git_delete_force", "auto_approve"), ("unknown", "auto_approve"),
        ("network", "conditional"), ("no_such_rule", "escalate"),
    ],
)  # fmt: skip
def test_the_matrix_cannot_be_talked_down(pattern: str, action: str) -> None:
    with pytest.raises(ConfigurationError, match=pattern):
        SafetyRule(pattern=pattern, action=action)  # type: ignore[arg-type]


def test_the_document_s_own_rules_are_accepted() -> None:
    SafetyRule(pattern="file_edit_in_tmp", action="auto_approve")
    SafetyRule(pattern="git_delete_force", action="escalate", target="architect_manager")


def test_values_that_make_no_sense_together_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="feature_branches"):
        AutoConfirmSettings(feature_branches=("feature/", ""))
    with pytest.raises(ConfigurationError, match="reviewers"):
        AutoConfirmSettings(reviewers=(ReviewerSetting(name="a"), ReviewerSetting(name="a")))
