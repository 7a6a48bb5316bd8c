"""What a remembered approval rests on: the same digest for the same rules, and for no others."""

import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.config.policy.policy_file import Basis
from ironcurtain_proxy.model.annotation import RoleSpec, ToolAnnotation
from ironcurtain_proxy.model.conditions import DomainCondition, PathCondition
from ironcurtain_proxy.model.policy import Floor, Policy, Rule
from ironcurtain_proxy.model.values import RealPath

HERE = RealPath.from_text("/work/one")
THERE = RealPath.from_text("/work/two")
RULE = Rule(
    name="ask",
    effect="escalate",
    reason="asked",
    servers=frozenset({"files"}),
    tools=frozenset({"write", "edit", "move", "copy"}),
    paths=PathCondition(roles=frozenset({"read-path", "write-path", "delete-path"}), within=HERE),
)
OTHER = replace(RULE, name="other", servers=frozenset({"git"}))
TOOL = ToolAnnotation(
    server="files", tool="write", arguments={"path": RoleSpec(default=("write-path",))}
)
POLICY = Policy(rules=(RULE,), version="1")


def digest(
    policy: Policy = POLICY, tool: ToolAnnotation = TOOL, workspace: RealPath | None = HERE
) -> str:
    return Basis(policy, {("files", "write"): tool}).digest("files", "write", workspace)


@pytest.mark.parametrize(
    "policy",
    [
        replace(POLICY, version="2"),
        Policy(rules=(OTHER, RULE)),
        Policy(rules=(RULE, replace(OTHER, effect="deny"))),
        Policy(rules=(RULE, replace(RULE, name="x", tools=frozenset({"read"})))),
    ],
)
def test_rules_about_other_tools_change_nothing(policy: Policy) -> None:
    assert digest(policy) == digest()


@pytest.mark.parametrize(
    "policy",
    [
        Policy(rules=()),
        Policy(rules=(replace(RULE, effect="deny"),)),
        Policy(rules=(replace(RULE, servers=None),)),
        Policy(rules=(replace(RULE, contained=False),)),
        Policy(rules=(RULE, replace(RULE, name="more"))),
        Policy(rules=(replace(RULE, name="more"), RULE)),
        Policy(
            rules=(
                replace(
                    RULE,
                    domains=DomainCondition(
                        roles=frozenset({"fetch-url"}), allowed=frozenset({"a.example"})
                    ),
                ),
            )
        ),
        Policy(rules=(RULE,), floors=(Floor(rules=(RULE,), asks=True),)),
        Policy(rules=(RULE,), floors=(Floor(rules=(RULE,), asks=False),)),
        Policy(rules=(RULE,), unknown_tools="ask"),
        Policy(rules=(RULE,), trusted_servers=frozenset({"files"})),
    ],
)
def test_anything_about_the_tool_makes_another_digest(policy: Policy) -> None:
    assert digest(policy) != digest()


def test_another_annotation_makes_another_digest() -> None:
    roles = replace(TOOL, arguments={"path": RoleSpec(default=("read-path",))})
    assert len({digest(), digest(tool=roles), digest(tool=replace(TOOL, effect="sends"))}) == 3


def test_a_rule_about_the_workspace_is_the_same_rule_in_each_workspace() -> None:
    assert RULE.paths is not None
    paths = PathCondition(roles=RULE.paths.roles, within=THERE)
    there = Policy(rules=(replace(RULE, paths=paths),))
    assert digest(there, workspace=THERE) == digest()
    assert digest(there, workspace=HERE) != digest()
    assert digest(workspace=None) != digest()


def test_another_process_finds_the_same_digest() -> None:
    words = "from tests.config.policy.test_difference import digest; print(digest())"
    found = {
        subprocess.run(
            [sys.executable, "-c", words],
            env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {digest()}
