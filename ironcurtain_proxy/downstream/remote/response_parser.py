"""The bytes of one HTTP/1.1 response, read by llhttp, the parser of Node.

Knows the framing and its limits: the head, chunks, trailers, responses that come before the one
that counts. Does not know the meaning of a body. What a server sends is kept only as far as these
limits; everything else ends the response with an error.
"""

from typing import Final

import httpx2
from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)

_HEAD: Final = 1 << 16
"""Bytes of a head, and bytes in a row in which no byte of a body comes (trailers, extensions)."""
_HEADERS: Final = 256
_INFORMED: Final = 16
"""Responses of 1xx before the final one. Attack: a flood of them, which costs time alone."""

_VERSIONS: Final = frozenset({"1.0", "1.1"})
_FINAL: Final = 200
_SWITCHED: Final = 101
_BODILESS: Final = frozenset({204, 304})
_LENGTH: Final = b"content-length"
_CODING: Final = b"transfer-encoding"


class ResponseParser:
    """One response, from its first byte."""

    __slots__ = (
        *("_beside", "_head", "_informed", "_is_tunnel", "_parser", "_parts", "_until_end"),
        *("headers", "is_complete", "is_kept", "size", "status"),
    )

    def __init__(self, *, is_tunnel: bool = False) -> None:
        """Begin without bytes.

        Args:
            is_tunnel: the response is one to CONNECT: after its head comes no body.
        """
        self.status = 0
        """The status of the final response; 0: its head is incomplete."""
        self.headers: list[tuple[bytes, bytes]] = []
        """The headers of the final response, with names in lower case."""
        self.is_complete = False
        self.is_kept = False
        """Whether the connection can carry another response after this one."""
        self.size = 0
        """Bytes of the body that nobody has taken."""
        self._is_tunnel = is_tunnel
        self._parts: list[bytes] = []
        self._head = self._beside = self._informed = 0
        self._until_end = False
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Read bytes.

        Raises:
            httpx2.RemoteProtocolError: they are no response, or break a limit.
        """
        if self._parser is None or self.is_complete:
            self.is_kept = False
            return
        before = self.size
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            # What comes after the response is not read, and spoils the connection alone.
            self.is_kept = False
            if not self.is_complete:
                raise _refused(error) from None
        self._beside = self._beside + len(data) if self.size == before else 0
        if self._beside > _HEAD and not self.is_complete:
            raise httpx2.RemoteProtocolError("the server sends too much that is no body")

    def end(self) -> None:
        """Note that no more bytes come.

        Raises:
            httpx2.RemoteProtocolError: the response is incomplete.
        """
        if self.status and self._until_end:
            self.is_complete = True
        if not self.is_complete:
            raise httpx2.RemoteProtocolError(
                "the server ended the connection before the end of its answer"
                if self.status
                else "the server ended the connection without an answer"
            )

    def take(self) -> bytes:
        """The part of the body that has arrived; empty: there is none."""
        parts, self._parts, self.size = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Let go of the parser, which holds this object."""
        self._parser = None

    # --- called by the parser

    def on_message_begin(self) -> None:
        """Begin a response."""
        if self.is_complete:
            raise httpx2.RemoteProtocolError("the server sends a second answer")
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Those of a trailer are left out."""
        if self.status:
            return
        self._head += len(name) + len(value)
        if self._head > _HEAD or len(self.headers) == _HEADERS:
            raise httpx2.RemoteProtocolError("the server sends too many headers")
        self.headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        """Look at a whole head."""
        if self._parser is None:
            return
        if self._parser.get_http_version() not in _VERSIONS:
            raise httpx2.RemoteProtocolError("the server speaks another version of HTTP")
        status = self._parser.get_status_code()
        if status < _FINAL:
            self._informed += 1
            if status == _SWITCHED or self._informed > _INFORMED:
                raise httpx2.RemoteProtocolError(f"the server sends status {status} unasked")
            return
        self.status = status
        if self._is_tunnel:
            self.is_complete = self.is_kept = True
            return
        codings = [value.lower() for name, value in self.headers if name == _CODING]
        if codings not in ([], [b"chunked"]):
            raise httpx2.RemoteProtocolError("the server uses an unknown transfer coding")
        has_length = any(name == _LENGTH for name, _ in self.headers)
        self._until_end = not (codings or has_length or status in _BODILESS)
        self.is_kept = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """Take a part of the body."""
        if self._is_tunnel:
            self.is_kept = False
            return
        self._parts.append(data)
        self.size += len(data)

    def on_message_complete(self) -> None:
        """Note the end of a response."""
        self.is_complete = self.status != 0


def _refused(error: Exception) -> httpx2.RemoteProtocolError:
    cause = error.__context__ if isinstance(error, HttpParserCallbackError) else None
    if isinstance(cause, httpx2.RemoteProtocolError):
        return cause
    return httpx2.RemoteProtocolError(str(error) or "the answer cannot be read")
