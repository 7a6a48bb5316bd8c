"""The bodies of requests, read up to a limit."""

from typing import Final

import anyio
from starlette.requests import Request

from ironcurtain_proxy.front.refusals import RefusalError

_SMALL: Final = 64 * 1024
_SLOWEST: Final = 60.0
"""Seconds for a body, however large."""


async def read_body(request: Request, limit: int, large: anyio.Lock) -> bytes:
    """The whole body.

    Args:
        request: of which nothing was read yet.
        limit: bytes.
        large: held while one is read that is not small, so that many cannot fill the memory.

    Raises:
        RefusalError: it is larger than the limit, or takes too long.
        ClientDisconnect: the client has gone.
    """
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size, holds = 0, False
    try:
        with anyio.fail_after(_SLOWEST):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
                if size > _SMALL and not holds:
                    await large.acquire()
                    holds = True
    except TimeoutError:
        raise RefusalError(408, "the message did not come to its end") from None
    finally:
        if holds:
            large.release()
    return b"".join(parts)


def _too_large(limit: int) -> RefusalError:
    return RefusalError(413, f"message is larger than {limit} bytes")
