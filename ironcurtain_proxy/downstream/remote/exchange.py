"""The messages of one session over HTTP: what is sent, what has arrived, and one request of them.

`Inbound` holds received messages as the lines that a conversation reads. It knows how many bytes
may wait, and not the meaning of a line: the reader of a stream waits in `put` while the
conversation does not keep up, so the stream is not read meanwhile. `Sending` sends each message as
an HTTP request of its own. A stream is read until it has brought the answer (`is_answer_to`); a
server may number its own requests as we do.

One request knows headers, redirects, logins and the size of a body; it does not know the meaning of
a message.
"""

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Final, Protocol

import anyio
import httpx2
from anyio.abc import TaskGroup
from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from ironcurtain_proxy.downstream.remote.network import USER_AGENT, body_of
from ironcurtain_proxy.errors import (
    CallLostError,
    DownstreamError,
    ServerUnavailableError,
    UnansweredError,
)
from ironcurtain_proxy.jsonrpc.codec import Malformed, MessageId, answer_id, decode, recover_id
from ironcurtain_proxy.jsonrpc.pipes import Lost, Oversize, StreamEnded

# --- requests


_REDIRECTS: Final = 5
_REASON: Final = 200
"""Characters of a library's words."""
_QUOTED: Final = re.compile(r":? (?:bytearray\()?b['\"].*", re.DOTALL)
"""What a library quotes of an answer: the agent would read the server's words as the proxy's."""

_PIECE: Final = 1 << 16
"""Bytes of a message that are sent at a time: each piece has time of its own to be taken."""

_REST: Final = 0.5
"""Seconds for the rest of a body that nobody wants, after which its connection is closed."""

UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_ITS_FAULT: Final = 500
_KEEPING: Final = frozenset({307, 308})
"""Redirects that keep the method and the message."""
_LEADING: Final = _KEEPING | {301, 302, 303}


class Response:
    """One answer, whose body is still to be read."""

    def __init__(self, raw: httpx2.Response) -> None:
        self._raw = raw
        self.status = raw.status_code

    def header(self, name: str) -> str:
        """Return a header, empty if it is not there."""
        return self._raw.headers.get(name, "")

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self._kind == "text/event-stream"

    @property
    def is_json(self) -> bool:
        """Whether the body is one JSON text."""
        return self._kind == "application/json"

    @property
    def is_packed(self) -> bool:
        """Whether the body is compressed, unasked: a small one can be a huge one."""
        return (self.header("content-encoding") or "identity").strip().lower() != "identity"

    @property
    def wants_more(self) -> bool:
        """Whether the token was taken, and does not go far enough (RFC 6750)."""
        said = self.header("www-authenticate")
        return self.status == _FORBIDDEN and "insufficient_scope" in said

    def events(self, largest: int) -> AsyncIterator[httpx2.ServerSentEvent]:
        """Read the body as events, in UTF-8.

        A server's own `charset` would choose among all codecs of Python, which unpack archives,
        too: some hundred bytes of bzip2 are gigabytes.

        Args:
            largest: bytes of one event.

        Raises:
            httpx2.SSEError: an event is larger.
        """
        self._raw.encoding = "utf-8-sig"
        read = self._raw.aiter_text
        self._raw.aiter_text = lambda *_: _lines_ended(read())  # type: ignore[method-assign]
        return aiter(httpx2.EventSource(self._raw, largest))

    async def body(self, largest: int) -> bytes | None:
        """Read the whole body, or return None if it is larger."""
        return await body_of(self._raw, largest)

    async def close(self) -> None:
        """Read no more. Only a connection whose body was read whole is used again."""
        try:
            if not (self._raw.is_stream_consumed or self._raw.is_closed or self.is_stream):
                with anyio.move_on_after(_REST):
                    await self.body(_PIECE)
        except httpx2.TransportError:
            pass  # nobody waits for it
        finally:
            await self._raw.aclose()

    @property
    def _kind(self) -> str:
        return self.header("content-type").partition(";")[0].strip().lower()


async def _lines_ended(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    r"""Yield a text with each end of a line as `\n`.

    The library keeps a `\r` at the end of a piece back until more comes, as half of a pair: of a
    server that ends its lines so, each event would be a late one, and the last would not come.
    """
    is_half = False
    async for piece in pieces:
        rest = piece.removeprefix("\n") if is_half else piece
        is_half = piece.endswith("\r")
        yield rest.replace("\r\n", "\n").replace("\r", "\n")


class Authorizer(Protocol):
    """Has the token of a server, if it wants one."""

    async def header(self) -> str | None:
        """Return the value of `Authorization`, or None if no such header."""

    async def renew(self, refused: str | None, response: Response) -> bool:
        """Get a new token in place of a refused one. Return False if there is none.

        Raises:
            DownstreamError: somebody has to log in.
        """


class NoLogin:
    """The authorizer of a server without a login: the operator's headers suffice."""

    async def header(self) -> str | None:
        """Return no header."""
        return None

    async def renew(self, refused: str | None, response: Response) -> bool:  # noqa: ARG002
        """Return False: there is no other header."""
        return False


class Requester:
    """Sends the requests of one server."""

    def __init__(
        self,
        server: str,
        transport: httpx2.AsyncBaseTransport,
        *,
        authorizer: Authorizer,
        headers: Mapping[str, str],
        max_message: int,
    ) -> None:
        """Set the connections without sending.

        Args:
            server: the server's name.
            transport: the server's connections.
            authorizer: gives the server's token.
            headers: the operator's headers.
            max_message: the most bytes of an answer.
        """
        self.server = server
        self.max_message = max_message
        self._transport = transport
        self._authorizer = authorizer
        self._headers = {
            "user-agent": USER_AGENT,
            "accept": "*/*",
            "accept-encoding": "identity",
            **{name.lower(): value for name, value in headers.items()},
        }

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes = b""
    ) -> AsyncIterator[Response]:
        """Send a request. If its token is refused, another is got, once.

        Args:
            method: its method.
            url: where it goes.
            headers: its own, with names in lower case.
            content: its body.

        Raises:
            DownstreamError: it cannot be sent, or is led to another origin.
        """
        try:
            response = await self._send(method, url, headers, content)
        except httpx2.TransportError as error:
            raise self.fault(error) from None
        try:
            yield response
        except httpx2.TransportError as error:
            raise self.fault(error) from None
        finally:
            await response.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes
    ) -> Response:
        said = {**self._headers, **headers}
        token = await self._authorizer.header()
        response = await self._follow(method, url, _with(said, token), content)
        if response.status == UNAUTHORIZED or response.wants_more:
            try:
                is_new = await self._authorizer.renew(token, response)
            finally:
                await response.close()
            if is_new:
                token = await self._authorizer.header()
                return await self._follow(method, url, _with(said, token), content)
        return response

    async def _follow(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes
    ) -> Response:
        """Follow redirects, but never away from the origin, and never without the message."""
        place = _place(url)
        for _ in range(_REDIRECTS):
            response = Response(
                await self._transport.handle_async_request(
                    _request(method, place, headers, content)
                )
            )
            if response.status not in _LEADING or not (to := response.header("location")):
                return response
            await response.close()
            following = led(place, to)
            is_kept = response.status in _KEEPING or method == "GET"
            if following is None or not is_kept or origin(place) != origin(following):
                where = shown_origin(following) if following and following.host else "nowhere"
                raise ServerUnavailableError(
                    f'server "{self.server}" redirects to {where}: only redirects within its own '
                    "address are followed; if another is right, write it as its url"
                )
            place = following
        raise ServerUnavailableError(f'server "{self.server}" redirects again and again')

    def fault(self, error: httpx2.TransportError) -> DownstreamError:
        """Return a failure of the network, in words that hold no URL."""
        unsent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
        reason = _words(error)
        if isinstance(error, unsent):
            return ServerUnavailableError(
                f'server "{self.server}" cannot be reached: {reason}; does it run at its url?'
            )
        if isinstance(error, httpx2.SSEError):
            return self.too_large()
        return CallLostError(
            f'the connection to server "{self.server}" broke before it answered: {reason}'
        )

    def too_large(self) -> DownstreamError:
        """Return the error in place of an answer over the limit."""
        return UnansweredError(
            f'server "{self.server}" sent an answer larger than {self.max_message} bytes'
        )

    async def body(self, response: Response) -> bytes:
        """Return the whole body.

        Raises:
            UnansweredError: it is larger than a message may be.
        """
        found = await response.body(self.max_message)
        if found is None:
            raise self.too_large()
        return found


@lru_cache(maxsize=16)
def _place(url: str) -> httpx2.URL:
    return httpx2.URL(url)


def _request(
    method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes
) -> httpx2.Request:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    if method != "POST":
        return httpx2.Request(method, url, headers=sent)
    sent.append((b"content-length", b"%d" % len(content)))
    return httpx2.Request(method, url, headers=sent, content=_pieces(content))


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _PIECE):
        yield content[start : start + _PIECE]


def led(place: httpx2.URL, to: str) -> httpx2.URL | None:
    """Return the address that a server names at a place, or None if it is none."""
    try:
        return place.join(to)
    except (httpx2.InvalidURL, ValueError):
        return None


def _with(headers: Mapping[str, str], token: str | None) -> Mapping[str, str]:
    return headers if token is None else {**headers, "authorization": token}


def origin(url: httpx2.URL) -> tuple[object, ...]:
    """Return what two addresses must have in common to be of one server."""
    return url.scheme, url.host, url.port, url.userinfo


def advice_on(status: int) -> str:
    """Return what to do about an HTTP status that is no answer, to follow the words of it."""
    if status == _FORBIDDEN:
        return "; its login or its key may not do that"
    return "; is its url right?" if status < _ITS_FAULT else "; the fault is its own, try later"


def shown_origin(url: httpx2.URL) -> str:
    """Return scheme, host and port; what else an address holds may be a secret."""
    return f"{url.scheme}://{url.host}" + (f":{url.port}" if url.port else "")


def _words(error: Exception) -> str:
    text = _QUOTED.sub("", str(error))[:_REASON]
    return "".join([char for char in text if char.isprintable()]) or type(error).__name__


# --- exchange


_QUEUED: Final = 256
_QUEUED_BYTES: Final = 8 << 20


class Inbound:
    """Implements `jsonrpc.wire.LineSource`."""

    def __init__(self) -> None:
        self.why = "its connection was closed"
        """The reason why no more messages can come, in words."""
        self._lines: deque[bytes | Lost | StreamEnded] = deque()
        self._bytes = 0
        self._taker: Callable[[bytes], bool] | None = None
        self._is_waiting = False
        self._ended = False
        self._arrived = anyio.Event()
        self._taken = anyio.Event()

    def offer_to(self, taker: Callable[[bytes], bool]) -> None:
        """Offer each line to a function first, while `receive` waits and none is queued."""
        self._taker = taker

    async def receive(self) -> bytes | Oversize | Lost | StreamEnded | None:
        """Return the next line, or None when no more can come."""
        while not self._lines:
            if self._ended:
                return None
            self._arrived = anyio.Event()
            self._is_waiting = True
            try:
                await self._arrived.wait()
            finally:
                self._is_waiting = False
        line = self._lines.popleft()
        self._bytes -= len(line) if isinstance(line, bytes) else 0
        self._taken.set()
        return line

    def close(self) -> None:
        """Take in no more."""
        self._ended = True
        self._taken.set()

    async def put(self, line: bytes) -> None:
        """Take a line that has arrived."""
        if self._is_waiting and not self._lines and self._taker is not None and self._taker(line):
            return
        self._append(line)
        while not self._ended and (len(self._lines) > _QUEUED or self._bytes > _QUEUED_BYTES):
            self._taken = anyio.Event()
            await self._taken.wait()

    def lose(self, request_id: MessageId, error: DownstreamError) -> None:
        """Note that a request gets no answer, unless it has got one."""
        self._append(Lost(request_id, error))

    def note_stream_ended(self, *, of_call: bool) -> None:
        """Note the end of a stream, see `StreamEnded`."""
        self._append(StreamEnded(of_call))

    def end(self, why: str) -> None:
        """Note that no more can come."""
        if not self._ended:
            self.why, self._ended = why, True
        self._arrived.set()
        self._taken.set()

    def _append(self, line: bytes | Lost | StreamEnded) -> None:
        self._lines.append(line)
        self._bytes += len(line) if isinstance(line, bytes) else 0
        self._arrived.set()


REPLIES_AT_ONCE: Final = 16
"""The most answers to the server's own requests that are sent at a time."""

REQUESTS_AT_ONCE: Final = 160
"""The most requests of ours that a server works on at a time. The others wait for their turn, and
leave connections for cancellations and answers."""

_METHOD: Final = b'"method":'
_HEAD: Final = 128
"""Bytes of a line in which the proxy writes the method, if there is one."""


class Sending(ABC):
    """Implements `jsonrpc.wire.LineSink`; received lines are in `inbound`."""

    def __init__(self, requester: Requester, url: str, inbound: Inbound) -> None:
        self._requester = requester
        self._url = url
        self._inbound = inbound
        self._unsent: list[bytes] = []
        self._replies: deque[bytes] = deque()
        self._replying = 0
        self.backlog = 0
        """Bytes of messages that the server has not begun to answer."""
        self._group: TaskGroup | None = None
        self.is_closed = False
        """Whether nothing can be sent any more."""

    def write(self, line: bytes) -> None:
        """Send a message concurrently with all others."""
        if self.is_closed:
            raise BrokenPipeError("the session is over")
        self.backlog += len(line)
        if self._group is None:
            self._unsent.append(line)
        elif _METHOD in line[:_HEAD]:
            self._group.start_soon(self._deliver, line)
        else:
            self._reply(line, self._group)

    def _reply(self, line: bytes, group: TaskGroup) -> None:
        # Attack: a server that asks thousands of things at once, each of which would be a request
        # that waits for a connection.
        self._replies.append(line)
        if self._replying < REPLIES_AT_ONCE:
            self._replying += 1
            group.start_soon(self._deliver_replies)

    async def _deliver_replies(self) -> None:
        try:
            while self._replies:
                await self._deliver(self._replies.popleft())
        finally:
            self._replying -= 1

    def abort(self) -> None:
        """Stop sending."""
        self.is_closed = True

    async def run(self) -> None:
        """Send messages until cancelled, or until the greeting needs the older transport."""
        async with anyio.create_task_group() as self._group:
            for line in self._unsent:
                self._group.start_soon(self._deliver, line)
            self._unsent = []
            await self._receive()

    async def _receive(self) -> None:
        await anyio.sleep_forever()

    @abstractmethod
    async def _deliver(self, line: bytes) -> None:
        """Send one message, and subtract it from the backlog."""


_SHORT: Final = 64 * 1024
_START: Final = 128
_EDGE: Final = 4096


class _Envelope(Struct):
    id: int | str | float | None = None
    method: Raw | None = None


_envelope: Final = Decoder(_Envelope).decode


def is_answer_to(line: bytes, request_id: MessageId) -> bool:
    """Return whether a line answers this request. A long one is looked at from both ends."""
    if len(line) > _SHORT:
        # Of a request or notification; a result holds the methods of the questions in it.
        is_request = b'"method"' in line[:_START].partition(b'"result"')[0]
        return not is_request and answer_id(recover_id(line[:_EDGE], line[-_EDGE:])) == request_id
    try:
        found = _envelope(line)
    except (MsgspecError, ValueError, RecursionError):
        return _is_odd_answer(line, request_id)
    return found.method is None and answer_id(found.id) == request_id


def _is_odd_answer(line: bytes, request_id: MessageId) -> bool:
    message = decode(line)
    if isinstance(message, Malformed):
        return answer_id(message.id) == request_id
    return "method" not in message and answer_id(message.get("id")) == request_id
