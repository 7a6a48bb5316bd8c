"""What a conversation needs of its wire, whatever carries it: pipes, or HTTP.

Knows messages as lines, and that one may be lost; does not know what carries them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ironcurtain_proxy.jsonrpc.codec import MessageId
from ironcurtain_proxy.jsonrpc.pipes import Oversize


@dataclass(frozen=True, slots=True)
class Lost:
    """A request that gets no answer, although the conversation goes on."""

    id: MessageId
    error: Exception


class LineSource(Protocol):
    """The lines that arrive. One task at a time may wait in `receive`."""

    def offer_to(self, taker: Callable[[bytes], bool]) -> None:
        """Offer each line to a function before it is queued; it may take the line, or refuse."""
        ...

    async def receive(self) -> bytes | Oversize | Lost | None:
        """The next line, or None when no more can come."""
        ...

    def close(self) -> None:
        """Take in no more."""
        ...


class LineSink(Protocol):
    """Where lines go."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        ...

    @property
    def backlog(self) -> int:
        """Bytes accepted that the other side has not taken."""
        ...

    def write(self, line: bytes) -> None:
        """Accept a line (with its newline) without waiting; raises `BrokenPipeError`."""
        ...

    def abort(self) -> None:
        """Close now; what was accepted but not sent is lost."""
        ...
