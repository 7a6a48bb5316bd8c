"""An `httpx2` client over guarded connections, for requests that are not messages of MCP.

Logins are made with it: the SDK's OAuth wants such a client.
"""

from typing import Final

import httpx2

from ironcurtain_proxy.downstream.remote.network import CONNECT
from ironcurtain_proxy.downstream.remote.pool import GuardedPool
from ironcurtain_proxy.downstream.remote.requests import USER_AGENT
from ironcurtain_proxy.downstream.remote.response import ResponseBody

_TIMEOUT: Final = httpx2.Timeout(None, connect=CONNECT)
"""The caller limits the time of the whole answer."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """`httpx2`'s transport over the connections of a pool."""

    def __init__(self, pool: GuardedPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the body of its response is still to be read."""
        content = await request.aread()
        response = await self._pool.send(request.method, request.url, request.headers.raw, content)
        return httpx2.Response(
            status_code=response.status,
            headers=response.raw_headers,
            stream=ResponseBody(response),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        self._pool.close()


def open_client(pool: GuardedPool) -> httpx2.AsyncClient:
    """A client that follows no redirect and knows no variable of the environment."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(pool),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        timeout=_TIMEOUT,
        follow_redirects=False,
        trust_env=False,
    )
