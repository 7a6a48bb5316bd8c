"""HTTP that reads no more than an answer needs and goes nowhere but where it is told.

Imported together with litellm, on first use. Knows nothing of models.
"""

from collections.abc import AsyncIterator
from typing import Final

import httpx

MAX_REPLY_BYTES: Final = 256 * 1024
"""Of a whole HTTP reply. An answer is one sentence."""


class ReplyError(httpx.TransportError):
    """A reply that is not read to its end."""


class _CappedStream(httpx.AsyncByteStream):
    """A reply that ends in an error when it grows too long."""

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


class CappedTransport(httpx.AsyncHTTPTransport):
    """Plain HTTP without retries, with a cap on what comes back."""

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
    """A client that follows no redirect and takes nothing from the environment."""
    return httpx.AsyncClient(
        transport=CappedTransport(retries=0), follow_redirects=False, trust_env=False
    )
