"""The interface between a conversation and its connection: pipes, or HTTP."""

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from ironcurtain_proxy.jsonrpc.codec import MessageId
from ironcurtain_proxy.jsonrpc.pipes import Oversize


class Lost(Struct, frozen=True):
    """A request that gets no answer although the conversation continues."""

    id: MessageId
    error: Exception


STREAM_ENDED: Final = "notifications/ironcurtain/stream_ended"
"""The notification with which the proxy tells its front that a server ended the stream of a call
before the answer: its client is to ask for the rest. A front that reads it says so by the same
method. It leaves the two of them never."""


OF_REQUEST: Final = "ironcurtain/request"
"""The key with which the proxy tells its front to which request a notification belongs. The front
takes it out."""


class StreamEnded(Struct, frozen=True):
    """A server over HTTP ended the stream of a call before its answer, which is to be asked for."""


class LineSource(Protocol):
    """The source of arriving lines. One task at a time may wait in `receive`."""

    def offer_to(self, taker: Callable[[bytes], bool]) -> None:
        """Offer each line to a function, which takes or refuses it, before it is queued."""

    async def receive(self) -> bytes | Oversize | Lost | StreamEnded | None:
        """The next line, or None when no more can come."""

    def close(self) -> None:
        """Stop receiving."""


class LineSink(Protocol):
    """The sink of outgoing lines."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""

    @property
    def backlog(self) -> int:
        """Bytes accepted and not yet taken by the other side."""

    def write(self, line: bytes) -> None:
        """Accept a line (with its newline) without waiting; raises `BrokenPipeError`."""

    def abort(self) -> None:
        """Close now; lines that were accepted and not sent are lost."""
