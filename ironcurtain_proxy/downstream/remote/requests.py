"""One HTTP request to a server, and its answer.

Knows headers, redirects, logins and the size of a body; does not know the meaning of a message.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Final, Protocol

import httpx2

from ironcurtain_proxy.downstream.remote.event_parser import StreamEvent
from ironcurtain_proxy.downstream.remote.pool import GuardedPool
from ironcurtain_proxy.downstream.remote.response import Response
from ironcurtain_proxy.errors import (
    CallLostError,
    DownstreamError,
    ServerUnavailableError,
    UnansweredError,
)
from ironcurtain_proxy.version import VERSION

USER_AGENT: Final = f"ironcurtain-proxy/{VERSION}"

_REDIRECTS: Final = 5
_REASON: Final = 200
"""Characters of a library's words."""

UNAUTHORIZED: Final = 401
_KEEPING: Final = frozenset({307, 308})
"""Redirects that keep the method and the message."""
_LEADING: Final = _KEEPING | {301, 302, 303}


class Authorizer(Protocol):
    """Has the token of a server, if it wants one."""

    async def header(self) -> str | None:
        """The value of `Authorization`; None: no such header."""

    async def renew(self, refused: str | None, response: Response) -> bool:
        """Get a new token in place of a refused one. False: there is none.

        Raises:
            DownstreamError: somebody has to log in.
        """


class NoLogin:
    """The authorizer of a server without a login: the operator's headers suffice."""

    async def header(self) -> str | None:
        """No header."""
        return None

    async def renew(self, refused: str | None, response: Response) -> bool:  # noqa: ARG002
        """False: there is no other header."""
        return False


class Requester:
    """Sends the requests of one server."""

    def __init__(
        self,
        server: str,
        pool: GuardedPool,
        *,
        authorizer: Authorizer,
        headers: Mapping[str, str],
        max_message: int,
    ) -> None:
        """Set the connections without sending.

        Args:
            server: the server's name.
            pool: the server's connections.
            authorizer: gives the server's token.
            headers: the operator's headers.
            max_message: the most bytes of an answer.
        """
        self.server = server
        self.max_message = max_message
        self._pool = pool
        self._authorizer = authorizer
        self._headers = {
            "user-agent": USER_AGENT,
            "accept-encoding": "identity",
            **{name.lower(): value for name, value in headers.items()},
        }

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes = b""
    ) -> AsyncIterator[Response]:
        """Send a request. If its token is refused, another is got, once.

        Args:
            method: its method.
            url: where it goes.
            headers: its own, with names in lower case.
            content: its body.

        Raises:
            DownstreamError: it cannot be sent, or is led to another origin.
        """
        try:
            response = await self._send(method, url, headers, content)
        except httpx2.TransportError as error:
            raise self.fault(error) from None
        try:
            yield response
        except httpx2.TransportError as error:
            raise self.fault(error) from None
        finally:
            response.close()

    async def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes
    ) -> Response:
        said = {**self._headers, **headers}
        token = await self._authorizer.header()
        response = await self._follow(method, url, _with(said, token), content)
        if response.status == UNAUTHORIZED or response.wants_more:
            try:
                is_new = await self._authorizer.renew(token, response)
            finally:
                response.close()
            if is_new:
                token = await self._authorizer.header()
                return await self._follow(method, url, _with(said, token), content)
        return response

    async def _follow(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes
    ) -> Response:
        """Follow redirects, but never away from the origin, and never without the message."""
        place = _place(url)
        for _ in range(_REDIRECTS):
            response = await self._pool.send(
                method, place, _sent(method, place, headers, content), content
            )
            if response.status not in _LEADING or not (to := response.header(b"location")):
                return response
            response.close()
            following = _led(place, to)
            is_kept = response.status in _KEEPING or method == "GET"
            if following is None or not is_kept or not _is_same_place(place, following):
                where = following.host if following is not None else ""
                raise ServerUnavailableError(
                    f'server "{self.server}" redirects to {where or "nowhere"}: '
                    "only redirects within its own address are followed"
                )
            place = following
        raise ServerUnavailableError(f'server "{self.server}" redirects again and again')

    def fault(self, error: httpx2.TransportError) -> DownstreamError:
        """A failure of the network, in words that hold no URL."""
        unsent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
        reason = _words(error)
        if isinstance(error, unsent):
            return ServerUnavailableError(f'server "{self.server}" cannot be reached: {reason}')
        if isinstance(error, httpx2.SSEError):
            return self.too_large()
        return CallLostError(
            f'the connection to server "{self.server}" broke before it answered: {reason}'
        )

    def too_large(self) -> DownstreamError:
        """The error in place of an answer over the limit."""
        return UnansweredError(
            f'server "{self.server}" sent an answer larger than {self.max_message} bytes'
        )

    async def body(self, response: Response) -> bytes:
        """The whole body.

        Raises:
            UnansweredError: it is larger than a message may be.
        """
        parts: list[bytes] = []
        size = 0
        while part := await response.read():
            size += len(part)
            if size > self.max_message:
                raise self.too_large()
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def events(self, response: Response) -> AsyncIterator[StreamEvent]:
        """The events of a stream."""
        return response.events(self.max_message)


@lru_cache(maxsize=16)
def _place(url: str) -> httpx2.URL:
    return httpx2.URL(url)


def _sent(
    method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes
) -> list[tuple[bytes, bytes]]:
    sent = [(b"host", url.netloc)]
    sent += [(name.encode(), value.encode()) for name, value in headers.items()]
    if method == "POST":
        sent.append((b"content-length", b"%d" % len(content)))
    return sent


def _led(place: httpx2.URL, to: str) -> httpx2.URL | None:
    """The target of a redirect; None: it is not known."""
    try:
        return place.join(to)
    except (httpx2.InvalidURL, ValueError):
        return None


def _with(headers: Mapping[str, str], token: str | None) -> Mapping[str, str]:
    if token is None:
        return headers
    return {**headers, "authorization": token}


def _is_same_place(here: httpx2.URL, there: httpx2.URL) -> bool:
    return (here.scheme, here.host, here.port, here.userinfo) == (
        there.scheme,
        there.host,
        there.port,
        there.userinfo,
    )


def _words(error: Exception) -> str:
    text = "".join([char for char in str(error) if char.isprintable()])[:_REASON]
    return text or type(error).__name__
