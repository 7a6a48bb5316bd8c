"""The approval modes, scenario by scenario, and as one table."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.approval.overlay import (
    APPROVAL_POLICY_ALL,
    APPROVAL_POLICY_CONFIGURED,
    APPROVAL_POLICY_DANGEROUS,
    APPROVAL_POLICY_NONE,
    InterceptorConfig,
    RatedTool,
    counts_as,
    is_gate_on,
    tool_names,
    why_asked,
)
from ironcurtain_proxy.model.annotation import SafetyLevel
from tests.approval.subjects import interceptors, unhurried
from tests.tables import table

SAFE, MODERATE, DANGEROUS = SafetyLevel
POLICIES = ("dangerous", "all", "configured", "none", "", "strict")
LEVELS = (None, 0, SAFE, MODERATE, DANGEROUS, 4, -1)


def needs_approval(of: RatedTool, config: InterceptorConfig) -> bool:
    return why_asked(of, config) is not None


def tool(level: SafetyLevel | int | None = DANGEROUS) -> RatedTool:
    return RatedTool(names=frozenset({"s/tool", "tool"}), safety_level=level)


def mode(policy: str, *, exempt: bool = False, sensitive: bool = False) -> InterceptorConfig:
    return InterceptorConfig(
        approval_policy=policy,
        exempt_tools=("s/other", "s/tool") if exempt else (),
        sensitive_tools=("tool",) if sensitive else (),
    )


TABLE: Final = table("approval/tables.modes", tuple[tuple[str, str, str, str], ...])


@pytest.mark.requirement(
    "E-4", "E-7", "E-8", "E-9", "E-10", "E-11", "E-12", "E-13", "E-14", "E-15", "E-16", "E-17"
)
@pytest.mark.parametrize(("policy", "exempt", "sensitive", "expected"), TABLE)
def test_mode_level_and_lists_decide_together(
    policy: str, exempt: str, sensitive: str, expected: str
) -> None:
    config = mode(policy, exempt=exempt == "exempt", sensitive=sensitive == "sensitive")
    found = ["y" if needs_approval(tool(level), config) else "n" for level in LEVELS]
    assert "".join(found) == expected


def test_the_table_has_a_row_for_every_mode_and_list() -> None:
    rows = {row[:3] for row in TABLE}
    assert len(rows) == len(TABLE) == len(POLICIES) * 2 * 2
    assert {row[0] for row in TABLE} == set(POLICIES)


@pytest.mark.requirement("E-1")
def test_policy_constants() -> None:
    assert APPROVAL_POLICY_DANGEROUS == "dangerous"
    assert APPROVAL_POLICY_ALL == "all"
    assert APPROVAL_POLICY_CONFIGURED == "configured"
    assert APPROVAL_POLICY_NONE == "none"


@pytest.mark.requirement("E-5")
def test_fresh_installation_defaults() -> None:
    config = InterceptorConfig()
    assert config.enabled
    assert config.approval_policy == "dangerous"
    assert config.exempt_tools == ()
    assert config.sensitive_tools == ()


@pytest.mark.requirement("E-16")
@pytest.mark.parametrize("policy", ["strict", "Dangerous", "NONE", " none", "none ", "true"])
def test_unknown_policy_fail_safe(policy: str) -> None:
    assert needs_approval(tool(SAFE), mode(policy))
    assert is_gate_on(mode(policy))


@pytest.mark.requirement("E-15", "E-18")
def test_none_policy_skips_wrapping_also_where_the_function_says_yes() -> None:
    config = mode("none", sensitive=True)
    assert needs_approval(tool(), config)
    assert not is_gate_on(config)


@pytest.mark.requirement("E-19")
@pytest.mark.parametrize("policy", ["dangerous", "all", "configured", ""])
def test_every_other_policy_holds_tools_up(policy: str) -> None:
    assert is_gate_on(mode(policy))
    assert not is_gate_on(InterceptorConfig(enabled=False, approval_policy=policy))


@pytest.mark.requirement("E-17")
@pytest.mark.parametrize(
    ("level", "word"),
    [(1, "safe"), (2, "moderate"), (3, "dangerous"), *[(n, "dangerous") for n in (None, 0, 4, -1)]],
)
def test_a_level_that_is_none_counts_as_dangerous(level: int | None, word: str) -> None:
    assert counts_as(level).name.lower() == word


def test_true_is_not_a_level() -> None:
    assert counts_as(True) == DANGEROUS


@pytest.mark.parametrize(
    ("listed", "unique", "meant"),
    table("approval/tables.sensitive_tools", list[tuple[str, bool, bool]]),
)
def test_a_sensitive_tool_is_meant_by_its_full_name_or_its_bare_one(
    listed: str, unique: bool, meant: bool
) -> None:
    named = RatedTool(names=tool_names("s", "tool", is_unique=unique), safety_level=SAFE)
    config = InterceptorConfig(sensitive_tools=(listed,))
    assert needs_approval(named, config) is meant


@pytest.mark.parametrize(("unique", "exempt"), [(True, True), (False, False)])
def test_a_bare_name_exempts_a_tool_only_if_one_server_has_it(unique: bool, exempt: bool) -> None:
    named = RatedTool(names=tool_names("s", "tool", is_unique=unique), safety_level=SAFE)
    config = InterceptorConfig(approval_policy="all", exempt_tools=("tool",))
    assert needs_approval(named, config) is not exempt


@unhurried
@given(interceptors, st.integers() | st.none())
def test_a_more_dangerous_tool_is_never_asked_about_less(
    config: InterceptorConfig, level: int | None
) -> None:
    if needs_approval(tool(level), config):
        assert needs_approval(tool(DANGEROUS), config)
