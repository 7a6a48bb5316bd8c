"""The policy in force: replaced as a whole while a session runs.

Theory of operation: a call reads the version before its facts are gathered and compares it after
every wait. Where it differs, the call is judged again from its facts, so that each call is decided
by exactly one policy, with the annotations that belong to it. Nothing waits between the
replacement of the policy and that of the annotations.
"""

from msgspec import Struct

from ironcurtain_proxy.model.policy import Policy


class PolicyInForce(Struct, kw_only=True):
    """The policy that calls are judged by now."""

    policy: Policy
    candidate: Policy | None = None
    """A policy that is judged beside it and recorded, and enforces nothing."""

    @property
    def version(self) -> str:
        """SHA-256 over the files of all layers, hexadecimal."""
        return self.policy.version
