"""The only kind of call that may be forwarded to a server."""

from collections.abc import Mapping
from dataclasses import dataclass

from ironcurtain_proxy.model.call import RequestId
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.request import AccessRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedCall:
    """Proof that the policy judged exactly these arguments.

    OpenSSH's monitor does the same with keys: what is used must be, byte for byte, what was
    allowed.
    """

    request_id: RequestId
    server: str
    tool: str
    arguments: Arguments
    """The judged arguments, in their normalised spelling."""
    params: Mapping[str, Json]
    """The part of the agent's `params` that is forwarded. Of `name` and `arguments` only their
    presence is kept."""
    request: AccessRequest | None = None
    """The request that the policy judged. It tells which hosts a failed call was meant to reach."""
