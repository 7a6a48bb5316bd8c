"""Refusals of requests, as HTTP and JSON-RPC say them."""

from typing import Final

from starlette.responses import Response

from ironcurtain_proxy.agent.messages import INVALID_REQUEST
from ironcurtain_proxy.jsonrpc.codec import MessageId, encode

JSON: Final = "application/json"
_CLOSING: Final = frozenset({401, 403, 408, 413, 421})


class RefusalError(Exception):
    """A request that is not carried out. Its words hold nothing of the request."""

    def __init__(
        self,
        status: int,
        words: str,
        *,
        code: int = INVALID_REQUEST,
        request_id: MessageId | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(words)
        self._status = status
        # Who is not let in, or says too much, holds no connection open with what it still says.
        closing = {"Connection": "close"} if status in _CLOSING else {}
        self._headers = {**(headers or {}), **closing}
        error = {"code": code, "message": words}
        self._said = {"jsonrpc": "2.0", "id": request_id, "error": error}

    def response(self) -> Response:
        """The answer that says it."""
        return Response(encode(self._said), self._status, self._headers, JSON)
