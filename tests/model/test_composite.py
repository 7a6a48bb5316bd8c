"""Composites, and the words about calls that wait."""

from ironcurtain_proxy.mediation.escalated import sign_of_life
from ironcurtain_proxy.model.operation import CompositeSpec, CompositeStep


def test_a_composite_keeps_its_steps_in_the_order_in_which_they_are_made() -> None:
    steps = tuple(CompositeStep(tool, {"n": number}) for number, tool in enumerate("bac"))
    spec = CompositeSpec(name="x", steps=steps)
    assert [step.tool for step in spec.steps] == ["b", "a", "c"]


def test_a_sign_of_life_grows_and_stays_below_what_a_server_would_say() -> None:
    first, later = sign_of_life("t", 5.0), sign_of_life("t", 3600.0)
    assert first["progressToken"] == "t"
    assert isinstance(first["progress"], float)
    assert isinstance(later["progress"], float)
    assert 0 < first["progress"] < later["progress"] < 1
    assert first["message"] == "waiting for approval (5 s)"
