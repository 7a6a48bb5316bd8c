"""One HTTP request to a server, and what may come back.

Knows headers, redirects, logins and the size of a body; does not know what a message says.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import httpx2

from ironcurtain_proxy.errors import (
    CallLostError,
    DownstreamError,
    ServerUnavailableError,
    UnansweredError,
)

_REDIRECTS: Final = 5
_REASON: Final = 200
"""Characters of a library's words."""

UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_EVENTS: Final = "text/event-stream"


class Authorizer(Protocol):
    """Has the token of a server, if it wants one."""

    async def header(self) -> str | None:
        """What `Authorization` says; None: nothing."""
        ...

    async def renew(self, refused: str | None, response: httpx2.Response) -> bool:
        """Get another token than the one that was refused. False: there is none.

        Raises:
            DownstreamError: somebody has to log in.
        """
        ...


class NoLogin:
    """For a server whose headers are all that the operator knows."""

    async def header(self) -> str | None:
        """Nothing."""
        return None

    async def renew(self, refused: str | None, response: httpx2.Response) -> bool:  # noqa: ARG002
        """There is no other."""
        return False


@dataclass(slots=True, kw_only=True)
class Requester:
    """Sends the requests of one server."""

    server: str
    client: httpx2.AsyncClient
    authorizer: Authorizer
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The operator's."""
    max_message: int

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request. If its token is refused, another is got, once.

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
            await response.aclose()

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        said = {**self.headers, **headers}
        token = await self.authorizer.header()
        response = await self._follow(method, url, _with(said, token), content)
        if response.status_code == UNAUTHORIZED or _wants_more(response):
            try:
                is_new = await self.authorizer.renew(token, response)
            finally:
                await response.aclose()
            if is_new:
                token = await self.authorizer.header()
                return await self._follow(method, url, _with(said, token), content)
        return response

    async def _follow(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        """Follow redirects, but never away from the origin, and never without the message."""
        request = self.client.build_request(method, url, headers=headers, content=content)
        for _ in range(_REDIRECTS):
            response = await self.client.send(request, stream=True)
            following = response.next_request
            if following is None:
                return response
            await response.aclose()
            if not _is_same_place(request, following):
                raise ServerUnavailableError(
                    f'server "{self.server}" redirects to {following.url.host or "nowhere"}: '
                    "only redirects within its own address are followed"
                )
            request = following
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
        """What an answer over the limit becomes."""
        return UnansweredError(
            f'server "{self.server}" sent an answer larger than {self.max_message} bytes'
        )

    async def body(self, response: httpx2.Response) -> bytes:
        """The whole body.

        Raises:
            UnansweredError: it is larger than a message may be.
        """
        parts: list[bytes] = []
        size = 0
        async for part in response.aiter_raw():
            size += len(part)
            if size > self.max_message:
                raise self.too_large()
            parts.append(part)
        return b"".join(parts)

    def events(self, response: httpx2.Response) -> httpx2.EventSource:
        """The events of a stream."""
        return httpx2.EventSource(response, max_event_size=self.max_message)


def is_stream(response: httpx2.Response) -> bool:
    """Whether the body is a stream of events."""
    return _kind(response) == _EVENTS


def is_json(response: httpx2.Response) -> bool:
    """Whether the body is one JSON text."""
    return _kind(response) == "application/json"


def is_packed(response: httpx2.Response) -> bool:
    """Whether the body is compressed, which was not asked for: a small one can be a huge one."""
    return response.headers.get("content-encoding", "identity").strip().lower() != "identity"


def _kind(response: httpx2.Response) -> str:
    said: str = response.headers.get("content-type", "")
    return said.partition(";")[0].strip().lower()


def _with(headers: Mapping[str, str], token: str | None) -> Mapping[str, str]:
    if token is None:
        return headers
    others = {name: value for name, value in headers.items() if name.lower() != "authorization"}
    return {**others, "Authorization": token}


def _wants_more(response: httpx2.Response) -> bool:
    challenge: str = response.headers.get("www-authenticate", "")
    return response.status_code == _FORBIDDEN and "insufficient_scope" in challenge


def _is_same_place(request: httpx2.Request, following: httpx2.Request) -> bool:
    there, here = following.url, request.url
    return (
        following.method == request.method
        and (there.scheme, there.host, there.port) == (here.scheme, here.host, here.port)
        and there.userinfo == here.userinfo
    )


def _words(error: Exception) -> str:
    text = "".join([char for char in str(error) if char.isprintable()])[:_REASON]
    return text or type(error).__name__
