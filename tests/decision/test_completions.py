"""Completions are decided as what they complete, and nobody is asked about them."""

from ironcurtain_proxy.decision.authorizer import unasked
from ironcurtain_proxy.model.decision import Allow, Deny, Escalate, Ground


def test_what_would_be_asked_about_is_denied_with_its_reason() -> None:
    found = unasked(Escalate(Ground("ask", "A person decides on notes"), ("read-path",)))
    assert isinstance(found, Deny)
    assert found.ground.rule == "completion-of-asked"
    assert found.ground.reason.endswith("would be asked about: A person decides on notes")


def test_what_is_allowed_or_denied_stays_so() -> None:
    allowed, denied = Allow(Ground("a", "a")), Deny(Ground("d", "d"))
    assert unasked(allowed) is allowed
    assert unasked(denied) is denied
