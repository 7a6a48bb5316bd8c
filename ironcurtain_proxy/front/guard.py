"""The checks of every request: the host, the origin, and the token of a principal.

Attacks that this stops: a page in the user's browser that sends requests to this machine (origin,
token), also under a name of its own that leads here (host); another program or user of this machine
(token).
"""

import socket
from collections.abc import Iterable, Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from ironcurtain_proxy.agent.messages import INVALID_REQUEST
from ironcurtain_proxy.front.listening import LOOPBACK, port_of
from ironcurtain_proxy.front.principals import Principals
from ironcurtain_proxy.jsonrpc.codec import MessageId, encode

JSON: Final = "application/json"
_CLOSING: Final = frozenset({401, 403, 408, 413, 421})


class RefusalError(Exception):
    """A request that is refused. The error's words repeat nothing of the request."""

    def __init__(
        self,
        status: int,
        words: str,
        *,
        code: int = INVALID_REQUEST,
        request_id: MessageId | None = None,
        headers: dict[str, str] | None = None,
        error: object = None,
    ) -> None:
        """Refuse a request.

        Args:
            status: of HTTP.
            words: what is wrong.
            code: of JSON-RPC.
            request_id: of the request, as far as it is known.
            headers: further ones of the answer.
            error: the whole error, in place of words and code.
        """
        super().__init__(words)
        self._status = status
        # A client that is refused, or sends too much, cannot hold its connection open by sending
        # more.
        closing = {"Connection": "close"} if status in _CLOSING else {}
        self._headers = {**(headers or {}), **closing}
        said = error or {"code": code, "message": words}
        self._said = {"jsonrpc": "2.0", "id": request_id, "error": said}

    def response(self) -> Response:
        """The response to the refused request."""
        return Response(encode(self._said), self._status, self._headers, JSON)


_NAMES: Final = (LOOPBACK, "localhost")


class RequestGuard:
    """Checks requests, and gives their principals."""

    def __init__(self, principals: Principals, hosts: Iterable[str]) -> None:
        """Accept requests of these principals to these hosts.

        Args:
            principals: who may come.
            hosts: what `Host` may say, with the port where that is not the scheme's own.
        """
        self._principals = principals
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(
            f"{scheme}://{host}" for host in self._hosts for scheme in ("http", "https")
        )

    def admit(self, headers: Headers) -> str:
        """The principal that a request comes from.

        Raises:
            RefusalError: it is of another host or page, or of nobody.
        """
        if headers.get("host", "").lower() not in self._hosts or len(headers.getlist("host")) > 1:
            raise RefusalError(421, "this address is not the proxy's; --public-name names another")
        if any(one.lower() not in self._origins for one in headers.getlist("origin")):
            raise RefusalError(403, "the request comes from a page of another origin")
        given = headers.getlist("authorization")
        principal = self._principals.of(given[0]) if len(given) == 1 else None
        if principal is None:
            raise RefusalError(401, "a token is needed", headers={"WWW-Authenticate": "Bearer"})
        return principal


def hosts_of(sockets: Sequence[socket.socket], public_names: Iterable[str]) -> list[str]:
    """The accepted values of `Host` for a front that listens on these sockets."""
    found = [*public_names]
    for one in sockets:
        if one.family == socket.AF_INET:
            found += [f"{name}:{port_of(one)}" for name in _NAMES]
            found += [f"{name}" for name in _NAMES if port_of(one) == 80]  # noqa: PLR2004
        else:
            found.append("localhost")
    return found
