"""What a rule for roles may say of calls without them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.decision import effect_of
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, TextValue

RESOURCES = sorted(role for role, traits in ROLE_TRAITS.items() if traits.category != "opaque")
OPAQUE = sorted(role for role, traits in ROLE_TRAITS.items() if traits.category == "opaque")


def about(*roles: ArgumentRole) -> AccessRequest:
    facts = tuple(
        ArgumentFact(f"a{at}", (role,), (TextValue("x"),)) for at, role in enumerate(roles)
    )
    return AccessRequest(
        server="s", tool="t", annotated=True, has_arguments=bool(facts), arguments=facts
    )


@pytest.mark.requirement("C-26")
@given(
    named=st.sets(st.sampled_from(RESOURCES), min_size=1),
    carried=st.lists(st.sampled_from(OPAQUE), max_size=3),
)
def test_a_rule_for_roles_says_nothing_of_a_call_without_one_of_them(
    named: set[ArgumentRole], carried: list[ArgumentRole]
) -> None:
    allowing = Rule(name="it", effect="allow", reason="so", roles=frozenset(named))
    decided = authorize(about(*carried), Policy(rules=(allowing,)))
    assert effect_of(decided) == "deny"
    assert decided.ground.rule != "it"


@given(
    named=st.sets(st.sampled_from(OPAQUE), min_size=1),
    carried=st.lists(st.sampled_from(OPAQUE), min_size=1, max_size=3),
)
def test_a_rule_for_roles_speaks_of_a_call_with_one_of_them(
    named: set[ArgumentRole], carried: list[ArgumentRole]
) -> None:
    allowing = Rule(name="it", effect="allow", reason="so", roles=frozenset(named))
    decided = authorize(about(*carried), Policy(rules=(allowing,)))
    assert (effect_of(decided) == "allow") is bool(named & set(carried))
