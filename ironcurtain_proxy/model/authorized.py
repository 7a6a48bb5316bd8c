"""The only kind of call that may leave."""

from collections.abc import Mapping
from dataclasses import dataclass

from ironcurtain_proxy.model.call import RequestId
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.request import AccessRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedCall:
    """Proof that the policy was asked about exactly these arguments.

    OpenSSH's monitor does the same with keys: what is used must be, byte for byte, what was
    allowed.
    """

    request_id: RequestId
    server: str
    tool: str
    arguments: Arguments
    """What was judged, in its normalised spelling."""
    params: Mapping[str, Json]
    """What crosses of the agent's `params`; of `name` and `arguments` only that they are there."""
    request: AccessRequest | None = None
    """What the policy was asked. Tells where the URLs lead, should the call fail."""
