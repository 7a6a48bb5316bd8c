"""HTTP with bounded replies, without redirects and without settings from the environment.

Imported together with litellm, on first use.
"""

import ssl
from collections.abc import AsyncIterator
from functools import cache
from typing import Final

import httpx

MAX_REPLY_BYTES: Final = 256 * 1024
"""The limit for a whole HTTP reply. An answer is one sentence."""


class ReplyError(httpx.TransportError):
    """A reply that is too long or compressed and is not read to its end."""


class _CappedStream(httpx.AsyncByteStream):
    """A reply stream that raises once it is too long."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                await self._stream.aclose()
                raise ReplyError("the answer is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@cache
def _authorities() -> ssl.SSLContext:
    """Return what TLS trusts. To read it takes longer than all else that makes a client."""
    return httpx.create_ssl_context()


class CappedTransport(httpx.AsyncHTTPTransport):
    """Plain HTTP without retries, with a size limit for replies."""

    def __init__(self) -> None:
        super().__init__(verify=_authorities())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        # A compressed reply could be small on the wire and fill the memory.
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise ReplyError("the answer is compressed")
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _CappedStream(response.stream)
        return response


def plain_client() -> httpx.AsyncClient:
    """Return a client that follows no redirect and takes no setting from the environment."""
    return httpx.AsyncClient(transport=CappedTransport(), follow_redirects=False, trust_env=False)
