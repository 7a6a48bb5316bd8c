"""Completions: nobody is asked at each letter that a person types."""

from ironcurtain_proxy.model.decision import Decision, Deny, Escalate, Ground


def unasked(decision: Decision) -> Decision:
    """The decision on a completion, from the one on what it completes."""
    if not isinstance(decision, Escalate):
        return decision
    asked = decision.ground.reason
    reason = (
        f"Nobody is asked about completions, and what it completes would be asked about: {asked}"
    )
    return Deny(Ground("completion-of-asked", reason))
