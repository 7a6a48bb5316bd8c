"""What holds of every policy of layers, and that the engine joins them as the reference does."""

from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.decision import SEVERITY, effect_of
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import AccessRequest
from tests.examples import examples
from tests.reference.layers import reference_layers
from tests.strategies import layered_policies, requests

thorough = settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow], deadline=None
)


@thorough
@given(requests(), layered_policies())
def test_layers_are_joined_as_the_reference_joins_them(
    request: AccessRequest, policy: Policy
) -> None:
    assert authorize(request, policy) == reference_layers(request, policy)


@thorough
@given(requests(), layered_policies())
def test_a_layer_that_restricts_never_makes_a_decision_milder(
    request: AccessRequest, policy: Policy
) -> None:
    without = effect_of(authorize(request, replace(policy, floors=())))
    assert SEVERITY[effect_of(authorize(request, policy))] >= SEVERITY[without]
