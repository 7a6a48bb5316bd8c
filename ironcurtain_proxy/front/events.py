"""A stream of messages as server-sent events.

Each event has an id, by which a client asks for what it missed. From 2025-11-25 on a stream begins
with an event that says nothing, so that there is an id from the start.
"""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Final

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from ironcurtain_proxy.front.guard import JSON
from ironcurtain_proxy.front.stream import Stream, StreamReader

MEDIA_TYPE: Final = "text/event-stream"
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
BEAT: Final = b": still here\n\n"
"""A comment, which shows that the connection is alive."""
_BEAT: Final = 15.0
"""Seconds after which it is sent."""
_PIECE: Final = 1 << 16
_RETRY: Final = 1000
_PRIMED: Final = "2025-11-25"
"""The version from which clients take an event without data."""
_ID: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)


def event_place(text: str) -> tuple[str, int] | None:
    """The stream and the number in the id of an event; None: the id is none of the front's."""
    found = _ID.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


def accepts(headers: Headers, kind: str) -> bool:
    """Whether a client takes answers of a kind."""
    said = headers.get("accept", "*/*").lower().split(",")
    kinds = {one.partition(";")[0].strip() for one in said}
    return bool(kinds & {kind, f"{kind.partition('/')[0]}/*", "*/*"})


def prefers_events(headers: Headers) -> bool:
    """Whether a client names event streams before JSON. Without a preference it gets JSON."""
    said = headers.get("accept", "").lower()
    return -1 < said.find(MEDIA_TYPE) < said.find(JSON)


def event_stream(
    stream: Stream,
    follower: StreamReader,
    version: str,
    headers: dict[str, str],
    first: bytes | None = None,
) -> StreamingResponse:
    """The response that carries the messages of a stream.

    Args:
        stream: the stream.
        follower: who takes them.
        version: of the protocol, as it was agreed.
        headers: further ones of the answer.
        first: a message that was taken already.
    """
    follower.comes_back = version >= _PRIMED
    return StreamingResponse(
        _events(stream, follower, first, is_primed=follower.comes_back),
        media_type=MEDIA_TYPE,
        headers={**HEADERS, **headers},
    )


def whole_answer(line: bytes, follower: StreamReader) -> Response:
    """The response of one message, as JSON."""
    if len(line) <= _PIECE:
        follower.leave()
        return Response(line, media_type=JSON)

    async def send() -> AsyncIterator[bytes]:
        try:
            for part in _parts(line):
                yield part
        finally:
            follower.leave()

    return StreamingResponse(send(), media_type=JSON, headers={"Content-Length": str(len(line))})


def _parts(line: bytes) -> Iterator[bytes]:
    """A message in pieces, each of which waits for the client. A whole one would be kept twice."""
    for at in range(0, len(line), _PIECE):
        yield line[at : at + _PIECE]


async def _events(
    stream: Stream, follower: StreamReader, first: bytes | None, *, is_primed: bool
) -> AsyncIterator[bytes]:
    last = follower.number - 1 - (first is not None)
    try:
        if is_primed:
            yield f"id: {stream.name}/{last}\nretry: {_RETRY}\ndata: \n\n".encode()
        async for line in lines_of(follower, first):
            if line is None:
                yield BEAT
                continue
            head = f"id: {stream.name}/{follower.number - 1}\nevent: message\ndata: ".encode()
            for part in _parts(head + line + b"\n\n"):
                yield part
    finally:
        follower.leave()


async def lines_of(follower: StreamReader, first: bytes | None) -> AsyncIterator[bytes | None]:
    """Yield the messages of a stream; `None` where none has come for a while.

    Args:
        follower: who takes them.
        first: a message that was taken already.
    """
    line = first
    while True:
        if line is None:
            with anyio.move_on_after(_BEAT) as waited:
                line = await follower.next()
            if waited.cancelled_caught:
                yield None
                continue
            if line is None:
                return
        yield line
        line = None
