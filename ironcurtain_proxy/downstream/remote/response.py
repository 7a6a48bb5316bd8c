"""The answer to one HTTP request, whose body is still to be read."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import httpx2

from ironcurtain_proxy.downstream.remote.event_parser import EventParser, StreamEvent

_FORBIDDEN: Final = 403
_EVENTS: Final = "text/event-stream"


class Response:
    """One answer."""

    __slots__ = ("_headers", "_release", "raw_headers", "read", "status")

    def __init__(
        self,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        read: Callable[[], Awaitable[bytes]],
        release: Callable[[], None],
    ) -> None:
        """Keep the head.

        Args:
            status: its status.
            headers: its headers, with names in lower case.
            read: the next part of the body; empty: it has ended.
            release: gives the connection back, once.
        """
        self.status = status
        self.raw_headers = headers
        self.read = read
        self._release: Callable[[], None] | None = release
        self._headers: dict[bytes, bytes] = {}
        for name, value in headers:
            known = self._headers.get(name)
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

    async def events(self, largest: int) -> AsyncIterator[StreamEvent]:
        """The body as events, in UTF-8.

        A server's own `charset` would choose among all codecs of Python, which unpack archives,
        too: some hundred bytes of bzip2 are gigabytes.

        Args:
            largest: bytes of one event.

        Raises:
            httpx2.SSEError: an event is larger.
        """
        parser = EventParser(largest)
        while part := await self.read():
            for event in parser.feed(part):
                yield event

    def close(self) -> None:
        """Read no more. A connection whose body was not read whole is closed."""
        if self._release is not None:
            self._release()
            self._release = None

    @property
    def _kind(self) -> str:
        return self.header(b"content-type").partition(";")[0].strip().lower()


class ResponseBody(httpx2.AsyncByteStream):
    """The body of a response as it arrives."""

    def __init__(self, response: Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self._response.read():
            yield part

    async def aclose(self) -> None:
        """Read no more."""
        self._response.close()
