"""Server-sent events, read from the bytes of a stream (WHATWG HTML, 9.2.6).

Knows lines and fields, and the limit of one event; does not know the meaning of its data. The text
is UTF-8, whatever a server says of its character set.
"""

from typing import Final

import httpx2
from msgspec import Struct

_BOM: Final = b"\xef\xbb\xbf"
_LONGEST_NUMBER: Final = 18
"""Digits of a pause; further ones make it no longer than is waited anyway."""


class StreamEvent(Struct, frozen=True):
    """One event."""

    event: str
    """The type; `message` where the server says none."""
    data: bytes
    """All lines of data as one UTF-8 text."""
    id: str
    """The last id that the stream had up to this event; empty: none."""
    retry: int | None
    """The pause that the server asks for, milliseconds."""


class EventParser:
    """The events of one stream, from its first byte."""

    def __init__(self, largest: int) -> None:
        """Begin without bytes.

        Args:
            largest: bytes of one event.
        """
        self._largest = largest
        self._line = bytearray()
        """The line that is incomplete."""
        self._size = 0
        """Bytes of the whole lines of the event that is incomplete."""
        self._is_first = True
        self._skips_newline = False
        """Whether the last byte was a carriage return, to which a newline may belong."""
        self._id = ""
        self._retry: int | None = None
        self._begin()

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Read bytes, and give the events that end in them.

        Raises:
            httpx2.SSEError: an event is larger than the limit.
        """
        if self._skips_newline and data.startswith(b"\n"):
            data = data[1:]
        self._skips_newline = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        last, found = lines.pop(), []
        for line in lines:
            if self._line:
                self._line += line
                line, self._line = bytes(self._line), bytearray()  # noqa: PLW2901
            event = self._take(line)
            if event is not None:
                found.append(event)
        self._line += last
        self._check(len(self._line))
        return found

    def _take(self, line: bytes) -> StreamEvent | None:
        """Take a whole line; an empty one ends an event."""
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end()
        if line.startswith(b":"):
            return None
        self._size += len(line)
        self._check(0)
        name, _, value = line.partition(b":")
        self._note(name, value.removeprefix(b" "))
        return None

    def _note(self, name: bytes, value: bytes) -> None:
        """Take a field. Unknown ones count for nothing."""
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self._retry = int(value[:_LONGEST_NUMBER])
        else:
            return
        self._says_something = True

    def _end(self) -> StreamEvent | None:
        event = None
        if self._says_something:
            data = b"\n".join(self._data)
            if not data.isascii():
                data = data.decode("utf-8", "replace").encode()
            event = StreamEvent(self._event or "message", data, self._id, self._retry)
        self._begin()
        return event

    def _begin(self) -> None:
        self._event, self._says_something = "", False
        self._data: list[bytes] = []
        self._retry = None
        self._size = 0

    def _check(self, waiting: int) -> None:
        if self._size + waiting > self._largest:
            raise httpx2.SSEError(f"an event is larger than {self._largest} bytes")
