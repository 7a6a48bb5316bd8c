"""Policy, profile and mode together: what asks, and what is denied."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from ironcurtain_proxy.approval.capabilities import AUTONOMOUS, SUPERVISED, Profile
from ironcurtain_proxy.approval.overlay import (
    InterceptorConfig,
    OverlayDecision,
    OverlayRules,
    Subject,
    judge,
)
from ironcurtain_proxy.model.annotation import SafetyLevel, ToolDeclaration
from ironcurtain_proxy.model.decision import SEVERITY, Decision, Ground, PriorConsent, effect_of
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.values import Json
from tests.approval.subjects import (
    ALLOW,
    DENY,
    ESCALATE,
    GROUND,
    PATHS,
    a_subject,
    decisions,
    overlay_rules,
    subjects,
    unhurried,
)
from tests.source import PACKAGE, nodes, one_worker
from tests.tables import table

OFF = InterceptorConfig(approval_policy="none")


def only(profile: Profile, isolation: str = "isolated") -> OverlayRules:
    """Rules with a profile and no mode."""
    return OverlayRules(
        interceptor=OFF,
        profile=profile,
        isolation="isolated" if isolation == "isolated" else "unknown",
    )


def asked_by(found: OverlayDecision) -> list[str]:
    return [reason.origin for reason in found.origins]


def test_a_profile_asks_in_words_that_people_read() -> None:
    found = judge(ALLOW, a_subject("write-path", "delete-path"), only(SUPERVISED))
    assert found.origins == (
        OriginReason(
            origin="capability",
            ground=Ground(
                "capability:fs.delete,fs.write",
                "The profile supervised asks before: delete files (fs.delete), "
                "create or change files (fs.write)",
            ),
            capabilities=("fs.delete", "fs.write"),
            profile="supervised",
        ),
    )
    assert found.effect == "escalate"
    assert found.capabilities == {"fs.write", "fs.delete"}


@pytest.mark.requirement("D-37")
def test_a_profile_denies_also_what_the_policy_would_have_asked_about() -> None:
    for kernel in (ALLOW, ESCALATE):
        found = judge(kernel, a_subject("fetch-url"), only(AUTONOMOUS))
        assert found.denied == Ground(
            "capability:net.egress",
            "The profile autonomous forbids: send data over the network (net.egress)",
        )
        assert found.origins == ()
        assert found.effect == "deny"


@pytest.mark.requirement("D-36", "D-38", "D-39")
def test_without_isolation_autonomous_asks_as_supervised_does() -> None:
    for call, effect in (
        (a_subject("read-path"), "allow"),
        (a_subject("write-path"), "escalate"),
        (a_subject("fetch-url"), "escalate"),
    ):
        found = judge(ALLOW, call, only(AUTONOMOUS, "unknown"))
        assert found == judge(ALLOW, call, only(SUPERVISED))
        assert found.effect == effect


def test_a_blocked_tool_is_denied_by_name() -> None:
    profile = replace(SUPERVISED, blocked_tools=frozenset({"s/tool"}))
    found = judge(ALLOW, a_subject("read-path"), only(profile))
    assert found.denied == Ground(
        "capability:blocked-tool", "The profile supervised forbids the tool s/tool"
    )


@pytest.mark.requirement("D-8")
def test_everything_that_asks_is_named_once_the_policy_first() -> None:
    rules = OverlayRules(interceptor=InterceptorConfig(approval_policy="all"), profile=SUPERVISED)
    found = judge(ESCALATE, a_subject("write-path"), rules)
    assert asked_by(found) == ["policy", "capability", "tool-policy"]
    assert found.origins[0].ground == GROUND
    assert found.origins[2].ground.rule == "approval-policy:all"


@pytest.mark.parametrize(
    ("config", "rule", "reason"),
    table("approval/overlay.a_mode_says_why_it_asks", list[tuple[InterceptorConfig, str, str]]),
)
def test_a_mode_says_why_it_asks(config: InterceptorConfig, rule: str, reason: str) -> None:
    found = judge(ALLOW, a_subject("delete-path"), OverlayRules(interceptor=config))
    assert found.origins == (OriginReason(origin="tool-policy", ground=Ground(rule, reason)),)


@pytest.mark.requirement("E-8")
def test_exempt_takes_away_what_the_mode_asks_and_nothing_else() -> None:
    config = InterceptorConfig(approval_policy="all", exempt_tools=("s/tool",))
    rules = OverlayRules(interceptor=config, profile=SUPERVISED)
    assert asked_by(judge(ESCALATE, a_subject("write-path"), rules)) == ["policy", "capability"]
    assert judge(DENY, a_subject("write-path"), rules).effect == "deny"
    forbidding = replace(rules, profile=replace(SUPERVISED, rules={"fs.write": "deny"}))
    assert judge(ALLOW, a_subject("write-path"), forbidding).effect == "deny"


@pytest.mark.requirement("E-15", "E-18")
def test_under_none_nobody_is_asked_about_a_sensitive_tool_either() -> None:
    config = InterceptorConfig(approval_policy="none", sensitive_tools=("s/tool",))
    found = judge(ALLOW, a_subject("delete-path"), OverlayRules(interceptor=config))
    assert found.origins == ()
    assert found.effect == "allow"


def test_a_mode_that_is_not_enabled_asks_nothing() -> None:
    config = InterceptorConfig(enabled=False, approval_policy="all")
    found = judge(ALLOW, a_subject("delete-path"), OverlayRules(interceptor=config))
    assert found.origins == ()


@pytest.mark.requirement("E-10", "E-12", "E-40")
def test_the_level_of_the_call_reaches_the_mode_and_whoever_is_asked() -> None:
    rules = OverlayRules()
    contained = a_subject("delete-path", standing=PriorConsent(contained=PATHS))
    for call, level, asked in (
        (a_subject("delete-path"), SafetyLevel.DANGEROUS, ["tool-policy"]),
        (contained, SafetyLevel.MODERATE, []),
        (a_subject("read-path", hints={"readOnlyHint": True}), SafetyLevel.SAFE, []),
    ):
        found = judge(ALLOW, call, rules)
        assert found.level == level
        assert asked_by(found) == asked


@pytest.mark.requirement("D-10")
def test_what_a_call_needs_depends_on_its_arguments() -> None:
    dry = a_subject("read-path", tool="edit_file")
    real = a_subject("read-path", "write-path", tool="edit_file")
    reading = replace(real, request=dry.request, by_arguments=frozenset({"secrets.access"}))
    assert judge(ALLOW, dry, only(SUPERVISED)).effect == "allow"
    assert judge(ALLOW, real, only(SUPERVISED)).origins[0].capabilities == ("fs.write",)
    found = judge(ALLOW, reading, only(SUPERVISED))
    assert found.origins[0].capabilities == ("secrets.access",)


def test_a_command_needs_what_its_parts_need() -> None:
    call = replace(a_subject(), command=frozenset({"proc.exec", "net.egress"}))
    assert judge(ALLOW, call, only(AUTONOMOUS)).effect == "deny"
    local = replace(call, command=frozenset({"proc.exec"}))
    assert judge(ALLOW, local, only(AUTONOMOUS)).effect == "allow"


def test_a_tool_that_nobody_described_is_asked_about_and_never_remembered() -> None:
    every: tuple[dict[str, Json] | None, ...] = (None, {"destructiveHint": True})
    for hints in every:
        call = a_subject(annotated=False, hints=hints)
        (reason,) = judge(ALLOW, call, only(SUPERVISED)).origins
        assert reason.ground.rule == "capability:undescribed"
        assert reason.capabilities == ()
    declared = ToolDeclaration(tool_id="s/tool", capabilities=("fs.read",))
    known = a_subject(annotated=False, declared=declared)
    assert judge(ALLOW, known, only(SUPERVISED)).effect == "allow"


def test_a_tool_that_nobody_described_can_be_approved_or_blocked_by_name() -> None:
    call = a_subject(annotated=False)
    approved = replace(SUPERVISED, pre_approved_tools=frozenset({"s/tool"}))
    blocked = replace(SUPERVISED, blocked_tools=frozenset({"s/tool"}))
    assert judge(ALLOW, call, only(approved)).effect == "allow"
    assert judge(ALLOW, call, only(blocked)).effect == "deny"


@pytest.mark.requirement("X-1", "D-28")
@unhurried
@given(subjects, overlay_rules)
def test_what_the_policy_denied_stays_denied_on_its_own_ground(
    call: Subject, rules: OverlayRules
) -> None:
    assert judge(DENY, call, rules) == OverlayDecision(denied=GROUND)


@pytest.mark.requirement("X-2")
@unhurried
@given(decisions, subjects, overlay_rules)
def test_the_overlay_only_raises(kernel: Decision, call: Subject, rules: OverlayRules) -> None:
    found = judge(kernel, call, rules)
    assert SEVERITY[found.effect] >= SEVERITY[effect_of(kernel)]


@pytest.mark.requirement("X-3")
@unhurried
@given(decisions, subjects, overlay_rules)
def test_with_everything_off_the_policy_alone_decides(
    kernel: Decision, call: Subject, rules: OverlayRules
) -> None:
    for off in (OFF, replace(rules.interceptor, enabled=False)):
        found = judge(kernel, call, replace(rules, interceptor=off, profile=None))
        assert found.effect == effect_of(kernel)
        assert asked_by(found) == (["policy"] if kernel == ESCALATE else [])
        assert found.denied == (GROUND if kernel == DENY else None)


@unhurried
@given(decisions, subjects, overlay_rules)
def test_a_call_is_denied_or_asked_about_and_no_origin_asks_twice(
    kernel: Decision, call: Subject, rules: OverlayRules
) -> None:
    found = judge(kernel, call, rules)
    assert (found.effect == "deny") is (found.denied is not None)
    assert (found.effect == "escalate") is bool(found.origins)
    if kernel == DENY:
        assert found.denied == GROUND
    order = [o for o in ("policy", "capability", "tool-policy") if o in asked_by(found)]
    assert asked_by(found) == order
    assert all(reason.ground.rule and reason.ground.reason for reason in found.origins)
    assert {c for r in found.origins for c in r.capabilities} <= found.capabilities | call.command


@one_worker
@pytest.mark.requirement("D-13")
def test_no_other_module_asks_profile_or_mode() -> None:
    deciding = {"verdict", "level_of", "why_asked"}
    rooms = {"capabilities", "modes"}
    imports: list[tuple[Path, ast.Import | ast.ImportFrom]]
    imports = [*nodes(ast.Import), *nodes(ast.ImportFrom)]
    asking = {
        str(module.relative_to(PACKAGE))
        for module, node in imports
        for imported in _imported(node)
        if imported.split(".")[1:2] == ["approval"]
        and rooms.intersection(imported.split(".")[2:3])
        and deciding.issuperset(imported.split(".")[3:])
    }
    assert asking == {"approval/overlay.py"}


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Dotted names, down to the function where one is imported."""
    base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    return [base + alias.name for alias in node.names]
