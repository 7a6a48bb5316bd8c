"""Tools of which the policy denies every call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import authorize, is_always_denied
from ironcurtain_proxy.model.annotation import (
    ArgumentRole,
    Equals,
    RoleCase,
    RoleSpec,
    ToolAnnotation,
)
from ironcurtain_proxy.model.conditions import PathCondition
from ironcurtain_proxy.model.decision import Deny
from ironcurtain_proxy.model.policy import Floor, Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.values import RealPath
from tests.strategies import layered_policies, policies, requests


def described(server: str = "s", /, **arguments: RoleSpec) -> ToolAnnotation:
    return ToolAnnotation(server=server, tool="t", arguments=arguments)


def of(*roles: ArgumentRole) -> RoleSpec:
    return RoleSpec(default=roles)


ROOT = PathCondition(roles=frozenset({"read-path"}), within=RealPath.from_text("/"))
DENY = Rule(name="no", effect="deny", reason="no", tools=frozenset({"t"}))
DENY_EVERYWHERE = Rule(
    name="no", effect="deny", reason="no", tools=frozenset({"t"}), everywhere=True
)
DENY_SOME = Rule(name="some", effect="deny", reason="no", paths=ROOT)
ASK = Rule(name="ask", effect="escalate", reason="so")
SOMETIMES = RoleSpec(
    default=("none",),
    cases=(RoleCase(condition=Equals(argument="x", value=1), roles=("read-path",)),),
)
WORK = RealPath.from_text("/work")


@pytest.mark.parametrize(
    ("policy", "server", "annotation", "denied"),
    [
        (Policy(rules=()), "s", None, True),
        (Policy(rules=(ASK,)), "s", None, True),
        (Policy(rules=(), trusted_servers=frozenset({"s"})), "s", None, False),
        (Policy(rules=(), unknown_tools="ask"), "s", None, False),
        (Policy(rules=(DENY_SOME,), unknown_tools="ask"), "s", None, False),
        (Policy(rules=(DENY,), unknown_tools="ask"), "s", None, True),
        (Policy(rules=(DENY,), unknown_tools="ask"), "s", described(a=of("none")), True),
        (Policy(rules=()), "s", described(), True),
        (Policy(rules=(ASK,)), "s", described(), False),
        (Policy(rules=(DENY, ASK)), "s", described(a=of("read-path")), True),
        (Policy(rules=(ASK, DENY)), "s", described(a=of("read-path")), False),
        (Policy(rules=(DENY_SOME,)), "s", described(a=of("read-path")), True),
        (Policy(rules=(DENY_SOME, ASK)), "s", described(a=of("read-path")), False),
        (Policy(rules=(DENY_SOME, ASK)), "s", described(a=SOMETIMES), False),
        (Policy(rules=(DENY_SOME,)), "s", described(a=SOMETIMES), True),
        (Policy(rules=()), "s", described(a=RoleSpec(default=("read-path",), inside={})), True),
        (
            Policy(rules=(ASK,)),
            "s",
            described(a=RoleSpec(default=("read-path",), inside={"b": of("none")})),
            False,
        ),
        (Policy(rules=(), workspace=WORK), "git", described(a=of("read-path")), False),
        (Policy(rules=(DENY,), workspace=WORK), "git", described(a=of("read-path")), False),
        (
            Policy(rules=(DENY_EVERYWHERE,), workspace=WORK),
            "git",
            described(a=of("read-path")),
            True,
        ),
        (
            Policy(rules=(), domain_allowlists={"s": frozenset({"a.b"})}),
            "s",
            described(a=of("fetch-url")),
            False,
        ),
        (Policy(rules=()), "s", described(a=of("fetch-url")), True),
        (
            Policy(rules=(ASK,), floors=(Floor(rules=(DENY,), asks=False),)),
            "s",
            described(a=of("read-path")),
            True,
        ),
        (
            Policy(rules=(ASK,), floors=(Floor(rules=(DENY_SOME,), asks=False),)),
            "s",
            described(a=of("read-path")),
            False,
        ),
    ],
)
def test_a_tool_counts_as_denied_always_where_no_call_of_it_can_be_allowed_or_asked_about(
    policy: Policy, server: str, annotation: ToolAnnotation | None, denied: bool
) -> None:
    assert is_always_denied(server, "t", annotation, policy) is denied


def test_the_question_which_directories_there_are_is_never_denied_always() -> None:
    tool = "list_allowed_directories"
    assert not is_always_denied("filesystem", tool, described("filesystem"), Policy(rules=()))


@given(request=requests(), policy=policies() | layered_policies(), data=st.data())
def test_no_call_of_a_tool_that_counts_as_denied_always_gets_another_decision(
    request: AccessRequest, policy: Policy, data: st.DataObject
) -> None:
    specs = {fact.name: RoleSpec(default=fact.roles) for fact in request.arguments}
    if data.draw(st.booleans()):
        specs["other"] = SOMETIMES
    annotation = None
    if request.annotated:
        annotation = ToolAnnotation(server=request.server, tool=request.tool, arguments=specs)
    elif policy.unknown_tools != "ask":
        # Nobody said what its arguments name, and they are guessed only where it is asked about.
        request = replace(request, arguments=(), repository=None, targets=())
    # Too few of the tools are of this kind for an assumption.
    if is_always_denied(request.server, request.tool, annotation, policy):
        assert isinstance(authorize(request, policy), Deny)
