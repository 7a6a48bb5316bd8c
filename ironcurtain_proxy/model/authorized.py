"""The only kind of operation that may be forwarded."""

from collections.abc import Mapping

from msgspec import Struct

from ironcurtain_proxy.model.operation import TOOL_CALL, Caller, Method, RequestId
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.values import Arguments, Json


class AuthorizedCall(Struct, frozen=True):
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
    method: Method = TOOL_CALL
    caller: Caller | None = None
    """See `Operation.caller`."""
