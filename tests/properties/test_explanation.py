"""What is explained is what was decided, and the proposed change does what it promises."""

from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.decision.explanation import explain
from ironcurtain_proxy.model.decision import Allow
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import AccessRequest
from tests.examples import examples
from tests.strategies import policies, requests

some = settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow], deadline=None
)


@some
@given(requests(), policies())
def test_the_proposed_rules_allow_the_call(request: AccessRequest, policy: Policy) -> None:
    explanation = explain(request, policy)
    assert explanation.decision == authorize(request, policy)
    if explanation.change:
        changed = replace(policy, rules=(*explanation.change, *policy.rules))
        assert isinstance(authorize(request, changed), Allow)
    elif not isinstance(explanation.decision, Allow):
        assert explanation.advice


@some
@given(requests(), policies())
def test_a_rule_that_decided_is_shown_as_one_that_holds(
    request: AccessRequest, policy: Policy
) -> None:
    explanation = explain(request, policy)
    name = explanation.decision.ground.rule
    if name.startswith("rule"):
        held = {t.rule for trace in explanation.roles for t in trace.trials if t.holds}
        assert name in held
