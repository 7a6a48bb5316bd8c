"""A posted message, and the response to it.

A message goes to the session's proxy as it came. An answer that comes soon is JSON. An answer that
takes longer, or that follows other messages, is a stream. The only methods known here are
`initialize` and the withdrawal of a request.
"""

from contextlib import suppress
from typing import Final

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response

from ironcurtain_proxy.agent.messages import INTERNAL_ERROR, GivenAnswer, Message
from ironcurtain_proxy.front.events import event_stream, prefers_events, whole_answer
from ironcurtain_proxy.front.guard import JSON, RefusalError
from ironcurtain_proxy.front.session import AgentSession
from ironcurtain_proxy.front.sessions import READS_STREAM_ENDS, Sessions, TooManySessionsError
from ironcurtain_proxy.jsonrpc.codec import Malformed, MessageId, decode, message_id

SESSION: Final = "mcp-session-id"

_GRACE: Final = 1.0
"""Seconds in which an answer is awaited before a stream is opened."""
_START: Final = 60.0
"""Seconds for a proxy to start and to answer `initialize`."""
_BLANKS: Final = bytes.maketrans(b"\n\r", b"  ")


async def initialize(
    sessions: Sessions, principal: str, found: Message | GivenAnswer, body: bytes
) -> Response:
    """Begin a session with its first message.

    Raises:
        RefusalError: it is another message, or no session can begin.
    """
    if isinstance(found, GivenAnswer) or found.method != "initialize" or found.id is None:
        raise RefusalError(400, f"{SESSION} is missing: initialize first")
    try:
        session = await sessions.begin(principal)
    except TooManySessionsError:
        raise _unavailable("too many sessions: end one first", found.id) from None
    except OSError:
        raise _unavailable("a session cannot be started now", found.id) from None
    line: bytes | None = None
    try:
        stream = session.begin(found)
        follower = stream.follow()
        with anyio.move_on_after(_START):
            await _send(session, READS_STREAM_ENDS.rstrip(b"\n"))
            await _send(session, body)
            line = await follower.next()
        session.forget(stream)
        session.version = _agreed(line)
    finally:
        if not session.version:
            sessions.end(session)
    if line is None:
        raise _unavailable("the session did not start", found.id)
    return Response(
        line, media_type=JSON, headers={SESSION: session.name} if session.version else {}
    )


async def deliver(
    headers: Headers, session: AgentSession, found: Message | GivenAnswer, body: bytes
) -> Response:
    """Hand a message to a session.

    Raises:
        RefusalError: its id is under way.
    """
    if isinstance(found, GivenAnswer) or found.id is None:
        await _send(session, body)
        if isinstance(found, Message) and found.method == "notifications/cancelled":
            session.withdraw(message_id(found.params.get("requestId")))
        return Response(status_code=202)
    if session.has(found.id):
        raise RefusalError(400, "a request with this id is under way", request_id=found.id)
    stream = session.begin(found)
    follower = stream.follow()
    first: bytes | None = None
    try:
        await _send(session, body)
        if not prefers_events(headers):
            with anyio.move_on_after(_GRACE):
                first = await follower.next()
    except BaseException:
        follower.leave()
        raise
    if first is not None and stream.is_over and follower.number > stream.last:
        session.forget(stream)
        return whole_answer(first, follower)
    return event_stream(stream, follower, session.version, {SESSION: session.name}, first)


async def _send(session: AgentSession, body: bytes) -> None:
    # Outside of strings these are blanks, and in a string they would not be JSON.
    line = body.translate(_BLANKS) if b"\n" in body or b"\r" in body else body
    with suppress(BrokenPipeError):  # it has ended, which its streams say
        await session.send(line + b"\n")


def _agreed(line: bytes | None) -> str:
    """The protocol version in the answer to `initialize`; empty: it was refused."""
    message = None if line is None else decode(line)
    result = None if message is None or isinstance(message, Malformed) else message.get("result")
    return str(result.get("protocolVersion", "")) if isinstance(result, dict) else ""


def _unavailable(words: str, request_id: MessageId) -> RefusalError:
    return RefusalError(503, words, code=INTERNAL_ERROR, request_id=request_id)
