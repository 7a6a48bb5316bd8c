"""What a shell command does decides what is asked about the tool that runs it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.approval.capabilities import AUTONOMOUS, SUPERVISED, Profile
from ironcurtain_proxy.approval.overlay import InterceptorConfig, OverlayRules, Subject, judge
from ironcurtain_proxy.mediation.judge import NamedTool, Overlay
from ironcurtain_proxy.model.annotation import ArgumentCapabilities, SafetyLevel, ToolDeclaration
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.decision import (
    Allow,
    Decision,
    Deny,
    Escalate,
    Ground,
    PriorConsent,
    effect_of,
)
from ironcurtain_proxy.model.request import AccessRequest, Facts
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.shell.statements import parse_command
from tests.approval.subjects import ALLOW, DENY, ESCALATE, decisions
from tests.examples import examples
from tests.shell.places import PROJECT
from tests.strategies import requests
from tests.tables import table

ALLOWED = Allow(Ground("rule", "so"))
SHELL = NamedTool("shell", "run", frozenset({"shell/run", "run"}))
DECLARED = ToolDeclaration(tool_id="shell/run", command_argument="command")


def judged(
    command: str, profile: Profile | None = SUPERVISED, mode: str = "none", **more: str
) -> Judgement:
    overlay = Overlay(
        rules=OverlayRules(interceptor=InterceptorConfig(approval_policy=mode), profile=profile),
        declarations={"shell/run": DECLARED},
        by_argument={"run": (ArgumentCapabilities("kind", {"admin": ("secrets.access",)}),)},
    )
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
    )
    facts = Facts(
        request=request,
        arguments={"command": command, **more},
        command=parse_command(command),
        place=PROJECT,
    )
    return overlay.judge(ALLOWED, facts, SHELL, PriorConsent)


@pytest.mark.requirement("D-10", "D-11")
def test_a_supervised_session_is_asked_about_commands_that_do_more_than_read() -> None:
    cases = table("approval/tables.supervised", list[tuple[str, str]])
    assert [
        (command, effect)
        for command, effect in cases
        if effect_of(judged(command).decision) != effect
    ] == []


def test_a_command_only_reads_where_the_place_is_known() -> None:
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
    )
    overlay = Overlay(rules=OverlayRules(profile=SUPERVISED), declarations={"shell/run": DECLARED})
    for command in ("git status", "cat notes.txt"):
        facts = Facts(
            request=request, arguments={"command": command}, command=parse_command(command)
        )
        assert isinstance(overlay.judge(ALLOWED, facts, SHELL, PriorConsent).decision, Escalate)


def test_a_profile_that_denies_egress_denies_the_command_that_sends() -> None:
    closed = Profile(
        name="closed", rules={"fs.read": "allow", "proc.exec": "allow", "net.egress": "deny"}
    )
    assert isinstance(judged("curl -d @x https://example.com", closed).decision, Deny)
    assert isinstance(judged("ls && curl https://example.com", closed).decision, Deny)
    assert isinstance(judged("ls", closed).decision, Allow)


@pytest.mark.requirement("E-7")
@pytest.mark.parametrize(("command", "asked"), [("ls", False), ("make", True)])
def test_the_mode_dangerous_asks_about_commands_unless_they_only_read(
    command: str, asked: bool
) -> None:
    found = judged(command, None, "dangerous")
    assert [reason.origin for reason in found.reasons] == (["tool-policy"] if asked else [])


def test_what_the_operator_said_of_a_tool_holds_whatever_its_command_reads() -> None:
    overlay = Overlay(
        rules=OverlayRules(interceptor=InterceptorConfig()),
        declarations={
            "run": ToolDeclaration(tool_id="run", safety_level=SafetyLevel.DANGEROUS),
            "shell/run": ToolDeclaration(tool_id="shell/run", safety_level=SafetyLevel.SAFE),
        },
    )
    found = overlay.declared(SHELL.names)
    assert found is not None
    assert found.safety_level is SafetyLevel.SAFE
    other = overlay.declared(frozenset({"other/run", "run"}))
    assert other is not None
    assert other.safety_level is SafetyLevel.DANGEROUS


@pytest.mark.requirement("D-10")
def test_an_argument_adds_what_the_operator_said_it_adds() -> None:
    assert "secrets.access" not in judged("ls", kind="user").capabilities
    assert "secrets.access" in judged("ls", kind="admin").capabilities


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /tmp/x",
        "ls; rm x",
        "sudo rm x",
        "sh -c 'ls && rm x'",
        "find . -exec rm {} +",
        "echo $(rm x)",
    ],
)
def test_a_program_that_the_profile_blocks_is_denied_anywhere_in_a_command(command: str) -> None:
    profile = Profile(name="own", blocked_programs=frozenset({"rm", "dd"}))
    decision = judged(command, profile).decision
    assert decision == Deny(
        Ground("capability:blocked-program", "The profile own forbids to run: rm")
    )


@pytest.mark.parametrize("names", [{"shell/run", "run"}, {"shell/run"}], ids=["certain", "not"])
def test_what_was_said_of_a_bare_name_restricts_a_tool_though_another_may_have_the_name(
    names: set[str],
) -> None:
    """A server that lists a tool of the same name, or none at all, must not lift a restriction."""
    overlay = Overlay(
        rules=OverlayRules(
            interceptor=InterceptorConfig(approval_policy="configured", sensitive_tools=("run",)),
            profile=Profile(name="own", blocked_tools=frozenset({"stop"})),
        ),
        declarations={
            "run": ToolDeclaration(
                tool_id="run", safety_level=SafetyLevel.SAFE, command_argument="command"
            )
        },
    )
    declared = overlay.declared(frozenset(names))
    assert declared is not None
    assert declared.command_argument == "command"
    assert (declared.safety_level is SafetyLevel.SAFE) is ("run" in names)
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
    )
    tool = NamedTool("shell", "run", frozenset(names))
    found = overlay.judge(ALLOWED, Facts(request=request, arguments={}), tool, PriorConsent)
    assert "tool-policy" in [reason.origin for reason in found.reasons]
    blocked = NamedTool("shell", "stop", frozenset({"shell/stop"}))
    denied = overlay.judge(ALLOWED, Facts(request=request, arguments={}), blocked, PriorConsent)
    assert isinstance(denied.decision, Deny)


HINTS = st.sampled_from(
    [None, {}, {"readOnlyHint": True}, {"destructiveHint": True}, {"openWorldHint": True, "x": 1}]
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(requests(), HINTS, st.booleans()), min_size=1, max_size=8),
    st.sampled_from([None, SUPERVISED, AUTONOMOUS]),
    st.sampled_from(["dangerous", "all", "configured", "none"]),
)
def test_what_is_remembered_of_calls_never_changes_what_is_said_of_the_next(
    calls: list[tuple[AccessRequest, dict[str, Json] | None, bool]],
    profile: Profile | None,
    mode: str,
) -> None:
    rules = OverlayRules(
        interceptor=InterceptorConfig(approval_policy=mode), profile=profile, isolation="isolated"
    )
    shared = Overlay(rules=rules)
    for request, hints, pushes in calls:
        facts = Facts(request=request, arguments={}, hints=hints, pushes=pushes)
        tool = NamedTool(request.server, request.tool, frozenset({f"s/{request.tool}"}))
        fresh = Overlay(rules=rules)
        assert shared.judge(ALLOWED, facts, tool, PriorConsent) == fresh.judge(
            ALLOWED, facts, tool, PriorConsent
        )
        subject = Subject(
            server=tool.server,
            tool=tool.tool,
            names=tool.names,
            request=request,
            hints=hints,
            pushes=pushes,
        )
        assert (
            shared.judge(ALLOWED, facts, tool, PriorConsent).reasons
            == judge(ALLOWED, subject, rules).origins
        )


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(decisions, requests(), HINTS), min_size=2, max_size=8),
    st.sampled_from([None, SUPERVISED, AUTONOMOUS]),
    st.sampled_from(["dangerous", "all", "configured", "none"]),
    st.sampled_from([None, "ls", "rm -rf /"]),
)
def test_an_overlay_that_judged_other_calls_judges_like_a_fresh_one(
    calls: list[tuple[Decision, AccessRequest, dict[str, Json] | None]],
    profile: Profile | None,
    mode: str,
    command: str | None,
) -> None:
    """Whatever the policy said of the others, and whatever their commands were."""
    rules = OverlayRules(interceptor=InterceptorConfig(approval_policy=mode), profile=profile)
    declared = {"read": ToolDeclaration(tool_id="read", command_argument="command")}
    shared = Overlay(rules=rules, declarations=declared)
    for kernel, request, hints in calls:
        parsed = None if command is None else parse_command(command)
        for facts in (
            Facts(request=request, arguments={}, hints=hints, command=parsed),
            Facts(request=request, arguments={}, hints=hints),
        ):
            tool = NamedTool(request.server, request.tool, frozenset({request.tool}))
            fresh = Overlay(rules=rules, declarations=declared)
            expected = fresh.judge(kernel, facts, tool, PriorConsent)
            assert shared.judge(kernel, facts, tool, PriorConsent) == expected


@pytest.mark.parametrize("kernel", [ALLOW, ESCALATE, DENY], ids=["allow", "escalate", "deny"])
def test_what_is_remembered_of_a_tool_does_not_stand_for_another_decision_of_the_policy(
    kernel: Decision,
) -> None:
    """An escalation of the policy has its own reason; the next call of the tool has none."""
    request = AccessRequest(server="s", tool="t", annotated=True, has_arguments=False, arguments=())
    facts, tool = Facts(request=request, arguments={}), NamedTool("s", "t", frozenset({"s/t"}))
    rules = OverlayRules(interceptor=InterceptorConfig(approval_policy="none"))
    shared = Overlay(rules=rules)
    shared.judge(kernel, facts, tool, PriorConsent)
    for after in (ALLOW, ESCALATE, DENY):
        fresh = Overlay(rules=rules).judge(after, facts, tool, PriorConsent)
        assert shared.judge(after, facts, tool, PriorConsent) == fresh
        assert bool(fresh.reasons) is (after is ESCALATE)


@pytest.mark.requirement("E-7")
def test_a_command_that_could_not_be_read_is_not_one_that_only_reads() -> None:
    overlay = Overlay(
        rules=OverlayRules(interceptor=InterceptorConfig(approval_policy="dangerous")),
        declarations={"shell/run": DECLARED},
    )
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
    )
    calls: list[dict[str, Json]] = [{}, {"command": 7}, {"command": ["ls"]}]
    for arguments in calls:
        facts = Facts(request=request, arguments=arguments, command=None)
        found = overlay.judge(ALLOWED, facts, SHELL, PriorConsent)
        assert [reason.origin for reason in found.reasons] == ["tool-policy"]
