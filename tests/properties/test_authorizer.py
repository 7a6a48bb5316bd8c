"""What holds of every decision, and that the engine decides as the reference does."""

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.conditions import VALUE_CONDITIONS
from ironcurtain_proxy.model.decision import Allow, Deny, Effect, effect_of
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest
from tests.examples import examples
from tests.reference.authorizer import reference_authorize
from tests.strategies import KINDS, policies, requests, rules

thorough = settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow], deadline=None
)
brief = settings(
    max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow], deadline=None
)


@pytest.mark.requirement("C-19", "C-26", "C-28")
@thorough
@given(requests(), policies())
def test_the_engine_decides_as_the_reference_does(request: AccessRequest, policy: Policy) -> None:
    assert authorize(request, policy) == reference_authorize(request, policy)


def test_a_condition_that_no_drawn_policy_has_is_one_of_operations_besides_calls() -> None:
    assert {kind.key for kind in VALUE_CONDITIONS} - {*KINDS} == {"uris"}


WANTED = {
    **dict.fromkeys(("allow", "escalate", "deny"), 20),
    **dict.fromkeys(("by a rule", "default-deny", "structural-protected-path"), 1),
    **dict.fromkeys(("structural-sandbox-allow", "structural-domain-escalate"), 1),
    "structural-unknown-tool": 1,
}
"""How often each must be met."""


class EnoughError(Exception):
    """Each was met often enough: no more is tried."""


def test_the_generators_bring_up_every_effect_and_invariant() -> None:
    seen: Counter[str] = Counter()

    @settings(
        brief,
        max_examples=5000,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    @given(requests(), policies())
    def look(request: AccessRequest, policy: Policy) -> None:
        decision = authorize(request, policy)
        rule = decision.ground.rule
        seen[effect_of(decision)] += 1
        seen["by a rule" if rule.startswith("rule") else rule] += 1
        if all(seen[what] >= least for what, least in WANTED.items()):
            raise EnoughError

    with suppress(EnoughError):
        look()
    assert {what for what, least in WANTED.items() if seen[what] < least} == set(), seen


@pytest.mark.requirement("C-19", "C-25")
@brief
@given(requests(), policies())
def test_without_rules_nothing_is_allowed_but_by_an_invariant(
    request: AccessRequest, policy: Policy
) -> None:
    decision = authorize(request, replace(policy, rules=()))
    assert not isinstance(decision, Allow) or decision.ground.rule in (
        "trusted-server",
        "structural-introspection-allow",
        "structural-sandbox-allow",
    )


@pytest.mark.requirement("C-20", "C-21")
@brief
@given(requests(), policies(), rules("added"))
def test_invariants_override_every_rule(request: AccessRequest, policy: Policy, rule: Rule) -> None:
    decision = authorize(request, policy)
    if decision.ground.rule in ("structural-protected-path", "structural-unknown-tool"):
        allow_all = replace(rule, effect="allow")
        assert authorize(request, replace(policy, rules=(allow_all, *policy.rules))) == decision


@pytest.mark.requirement("C-25")
@brief
@given(requests(), policies(), st.integers(0, 7))
def test_taking_an_allow_rule_away_never_allows_more(
    request: AccessRequest, policy: Policy, place: int
) -> None:
    if place >= len(policy.rules) or policy.rules[place].effect != "allow":
        return
    # Only where no wider rule stands behind it: there the next one would answer instead.
    fewer = policy.rules[:place]
    before: Effect = effect_of(authorize(request, replace(policy, rules=policy.rules[: place + 1])))
    after: Effect = effect_of(authorize(request, replace(policy, rules=fewer)))
    assert not (before != "allow" and after == "allow")


@brief
@given(requests(), policies())
def test_an_unannotated_tool_is_never_allowed_unless_its_server_is_trusted(
    request: AccessRequest, policy: Policy
) -> None:
    policy = replace(policy, trusted_servers=frozenset())
    request = replace(request, annotated=False, arguments=(), question=None)
    decision = authorize(request, policy)
    assert effect_of(decision) != "allow"
    if request.method == "tools/call" and policy.unknown_tools == "deny":
        assert isinstance(decision, Deny)
        assert decision.ground.rule == "structural-unknown-tool"


@brief
@given(requests(), policies())
def test_deciding_twice_gives_the_same_answer(request: AccessRequest, policy: Policy) -> None:
    assert authorize(request, policy) == authorize(request, policy)
