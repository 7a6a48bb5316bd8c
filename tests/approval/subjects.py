"""Calls for the overlay, and generators of them."""

from hypothesis import settings
from hypothesis import strategies as st

from ironcurtain_proxy.approval.capabilities import AUTONOMOUS, SUPERVISED, Level, Profile
from ironcurtain_proxy.approval.overlay import InterceptorConfig, OverlayRules, Subject, tool_names
from ironcurtain_proxy.model.annotation import (
    CAPABILITIES,
    ArgumentRole,
    SafetyLevel,
    ToolDeclaration,
)
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Escalate, Ground, PriorConsent
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact
from ironcurtain_proxy.model.values import Json
from tests.strategies import ROLES, requests

unhurried = settings(deadline=None)
"""The machine may be busy."""

PATHS: frozenset[ArgumentRole] = frozenset({"read-path", "delete-path", "write-path"})

GROUND = Ground("rule", "because")
ALLOW = Allow(GROUND)
ESCALATE = Escalate(GROUND)
DENY = Deny(GROUND)


def a_subject(
    *roles: ArgumentRole,
    tool: str = "tool",
    annotated: bool = True,
    declared: ToolDeclaration | None = None,
    hints: dict[str, Json] | None = None,
    pushes: bool = False,
    standing: PriorConsent | None = None,
) -> Subject:
    """A call of `s/tool`, a tool that no other server has, with one argument for each role."""
    return Subject(
        server="s",
        tool=tool,
        names=tool_names("s", tool, is_unique=True),
        request=AccessRequest(
            server="s",
            tool=tool,
            annotated=annotated,
            has_arguments=bool(roles),
            arguments=tuple(ArgumentFact(f"a{i}", (role,), ()) for i, role in enumerate(roles)),
        ),
        declared=declared,
        hints=hints,
        pushes=pushes,
        standing=PriorConsent() if standing is None else standing,
    )


CAPABILITY_NAMES = (
    *CAPABILITIES,
    "fs.write.outside_base",
    "fs.write:/work/**",
    "attachments.send",
    "",
)
TOOL_NAMES = ("s/tool", "tool", "s/other", "t/tool", "other")
capability_sets = st.frozensets(st.sampled_from(CAPABILITY_NAMES), max_size=4)
_names = st.frozensets(st.sampled_from(TOOL_NAMES), max_size=2)
_hint_values: st.SearchStrategy[Json] = st.sampled_from((True, False, None, "true", 1))
hint_sets = st.none() | st.dictionaries(
    st.sampled_from(("readOnlyHint", "destructiveHint", "openWorldHint", "idempotentHint")),
    _hint_values,
)
role_sets = st.frozensets(st.sampled_from(ROLES), max_size=3)
_levels: st.SearchStrategy[Level] = st.sampled_from(("allow", "approve", "deny"))

declarations = st.builds(
    ToolDeclaration,
    tool_id=st.just("s/tool"),
    capabilities=st.lists(st.sampled_from(CAPABILITY_NAMES), max_size=3).map(tuple),
    safety_level=st.none() | st.sampled_from(SafetyLevel),
    command_argument=st.none() | st.just("command"),
)

subjects = st.builds(
    Subject,
    server=st.just("s"),
    tool=st.just("tool"),
    names=st.sampled_from((frozenset({"s/tool"}), frozenset({"s/tool", "tool"}))),
    request=requests(),
    declared=st.none() | declarations,
    by_arguments=capability_sets,
    command=capability_sets,
    hints=hint_sets,
    pushes=st.booleans(),
    standing=st.builds(
        PriorConsent, contained=role_sets, names_tool=st.booleans(), names_roles=role_sets
    ),
)

profiles = st.sampled_from((AUTONOMOUS, SUPERVISED)) | st.builds(
    Profile,
    name=st.just("mine"),
    rules=st.dictionaries(st.sampled_from(CAPABILITY_NAMES), _levels, max_size=4),
    default=st.sampled_from(("approve", "deny")),
    blocked_tools=_names,
    pre_approved_tools=_names,
    needs_isolation=st.booleans(),
)

interceptors = st.builds(
    InterceptorConfig,
    enabled=st.booleans(),
    approval_policy=st.sampled_from(("dangerous", "all", "configured", "none", "", "strict")),
    exempt_tools=_names.map(tuple),
    sensitive_tools=_names.map(tuple),
    approval_contained=st.booleans(),
    approval_allowed=st.booleans(),
)

overlay_rules = st.builds(
    OverlayRules,
    interceptor=interceptors,
    profile=st.none() | profiles,
    isolation=st.sampled_from(("isolated", "unisolated", "unknown")),
)

decisions: st.SearchStrategy[Decision] = st.sampled_from((ALLOW, ESCALATE, DENY))
