"""The answer to one HTTP request, whose body is still to be read."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

import httpcore2
import httpx2

from ironcurtain_proxy.downstream.remote.network import as_httpx, body_of

_FORBIDDEN: Final = 403
_EVENTS: Final = "text/event-stream"
_NOWHERE: Final = httpx2.Request("GET", "http://stream.invalid/")
"""The request of an `EventSource`, which needs one for its exceptions."""


class Response:
    """One answer."""

    __slots__ = ("_answer", "_headers", "status")

    def __init__(self, answer: httpcore2.Response) -> None:
        self.status: int = answer.status
        self._answer = answer
        self._headers: dict[bytes, bytes] = {}
        for name, value in answer.headers:
            known = self._headers.get(name := name.lower())
            self._headers[name] = value if known is None else known + b", " + value

    def header(self, name: bytes) -> str:
        """A header by its lower-case name; empty: it is not there."""
        return self._headers.get(name, b"").decode("latin-1")

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self._kind == _EVENTS

    @property
    def is_json(self) -> bool:
        """Whether the body is one JSON text."""
        return self._kind == "application/json"

    @property
    def is_packed(self) -> bool:
        """Whether the body is compressed, unasked: a small one can be a huge one."""
        said = self._headers.get(b"content-encoding", b"identity")
        return said.strip().lower() != b"identity"

    @property
    def wants_more(self) -> bool:
        """Whether the token was taken, and does not go far enough (RFC 6750)."""
        said = self.header(b"www-authenticate")
        return self.status == _FORBIDDEN and "insufficient_scope" in said

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        if not isinstance(self._answer.stream, AsyncIterable):
            raise TypeError("a body that can be read")
        with as_httpx():
            async for part in self._answer.stream:
                yield part

    def events(self, largest: int) -> httpx2.EventSource:
        """The body as events, in UTF-8.

        A server's own `charset` would choose among all codecs of Python, which unpack archives,
        too: some hundred bytes of bzip2 are gigabytes.

        Args:
            largest: bytes of one event.
        """
        whole = httpx2.Response(
            self.status,
            headers={"content-type": _EVENTS},
            stream=body_of(self._answer),
            request=_NOWHERE,
        )
        return httpx2.EventSource(whole, max_event_size=largest)

    async def close(self) -> None:
        """Read no more. A connection whose body was not read whole is closed."""
        await self._answer.aclose()

    @property
    def _kind(self) -> str:
        return self.header(b"content-type").partition(";")[0].strip().lower()
