"""Streamable HTTP, from the client's side: each message is a request of its own.

The answer to a request comes as JSON, or at the end of a stream of events that belongs to it.
Messages that belong to no request come in a stream that is opened after the greeting. A stream that
breaks is taken up where it ended, if its events have ids; without them a request is lost, because
it may have been carried out.

A message without a handshake (`modern`) has no session, is repeated in headers, and is withdrawn by
closing its stream, which is not taken up again.

If the server has forgotten the session (404), this session ends, and `supervisor` greets the server
again.
"""

from collections.abc import Mapping
from typing import Final

import anyio
import httpx2

from ironcurtain_proxy.downstream.remote import exchange
from ironcurtain_proxy.downstream.remote.exchange import (
    UNAUTHORIZED,
    Inbound,
    Requester,
    Response,
    Sending,
    advice_on,
    is_answer_to,
)
from ironcurtain_proxy.errors import (
    CallLostError,
    DownstreamError,
    ServerUnavailableError,
    SessionForgottenError,
    UnansweredError,
)
from ironcurtain_proxy.jsonrpc.codec import (
    Malformed,
    MessageId,
    MirroredPaths,
    decode,
    headers_of_message,
    message_id,
    version_of,
)
from ironcurtain_proxy.model.operation import HANDSHAKE_VERSIONS
from ironcurtain_proxy.model.values import Json, object_of

BOTH: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
EVENTS: Final = {"accept": "text/event-stream", "cache-control": "no-store"}
SESSION: Final = "mcp-session-id"
_VERSION: Final = "mcp-protocol-version"
_LAST_EVENT: Final = "last-event-id"
_LONGEST: Final = 1024

_NOT_FOUND: Final = 404
_NO_METHOD: Final = 405
_REFUSED: Final = 400
_OLDER: Final = frozenset({400, 404, 405})
"""The status codes with which a server of the older transport answers a message."""

_RETRY: Final = 1.0
_SHORTEST_RETRY: Final = 100
"""Milliseconds that a server may ask for."""
_LONGEST_RETRY: Final = 30.0
_ATTEMPTS: Final = 5
"""A broken stream is taken up so many times in a row without an event in between."""


_REST: Final = 0.5
"""Seconds for a stream to end after its answer."""

_LAST_ANSWERS: Final = 2.0
"""Seconds for requests under way when the session was found to be forgotten."""
_LOOK_AGAIN: Final = 0.02

_FORGOTTEN: Final = "it has forgotten the session"


class ForgottenMeanwhileError(CallLostError):
    """The server took a request, and does not know the session when asked for the answer."""


class StreamableHttp(Sending):
    """One session over streamable HTTP."""

    def __init__(self, requester: Requester, url: str, inbound: Inbound) -> None:
        super().__init__(requester, url, inbound)
        self._server = requester.server
        self._session: dict[str, str] = {}
        self._greeted = anyio.Event()
        self._under_way: dict[MessageId, anyio.CancelScope] = {}
        self._waiting: set[MessageId] = set()
        """The requests among them that the server has not heard of."""
        self._turns = anyio.CapacityLimiter(exchange.REQUESTS_AT_ONCE)
        self.mirrored: Mapping[str, MirroredPaths] = {}
        """Which arguments of which tools stand in headers."""
        self._modern: set[MessageId] = set()
        """The requests under way that had no handshake before."""
        self._greeting: MessageId | None = None
        """The number of the greeting."""
        self.older: bytes | None = None
        """The greeting, if the server refused it as servers of the older transport do."""

    @property
    def has_session(self) -> bool:
        """Whether the server has begun a session."""
        return SESSION in self._session

    async def say_goodbye(self) -> None:
        """Tell the server that the session is over."""
        if self.has_session:
            async with self._requester.open("DELETE", self._url, self._session):
                pass

    # --- one message

    async def _deliver(self, line: bytes) -> None:
        message = decode(line)
        if isinstance(message, Malformed):
            raise TypeError("what we write can be read")
        method, params = message.get("method"), message.get("params")
        if method == "notifications/cancelled" and self._is_withdrawn_here(params):
            self.backlog -= len(line)
            return
        request_id = message_id(message.get("id")) if "method" in message else None
        try:
            with anyio.CancelScope() as scope:
                if request_id is None:
                    await self._until_greeted(method)
                    await self._exchange(line, None, self._session)
                else:
                    self._under_way[request_id] = scope
                    own = self._own_headers(message, request_id)
                    await self._request(line, request_id, method, own)
        except DownstreamError as error:
            if request_id is not None:
                self._inbound.lose(request_id, error)
            if isinstance(error, SessionForgottenError | ForgottenMeanwhileError):
                self._inbound.end(_FORGOTTEN)
        finally:
            if request_id is not None:
                del self._under_way[request_id]
                self._modern.discard(request_id)
        self._note_sent(method, params)

    def _own_headers(
        self, message: Mapping[str, Json], request_id: MessageId
    ) -> Mapping[str, str] | None:
        """Return the headers of a message without a handshake. None: it is one with a session."""
        if not version_of(message):
            return None
        if message.get("method") != "initialize":
            self._modern.add(request_id)
        return headers_of_message(message, self.mirrored)

    async def _until_greeted(self, method: Json) -> None:
        if not str(method).endswith("initialize") and method != "notifications/initialized":
            await self._greeted.wait()

    async def _request(
        self, line: bytes, request_id: MessageId, method: Json, own: Mapping[str, str] | None
    ) -> None:
        """Send a request when its turn comes. Until then it can be withdrawn without a trace."""
        self._waiting.add(request_id)
        try:
            if own is None:
                await self._until_greeted(method)
            async with self._turns:
                self._waiting.remove(request_id)
                if method == "initialize":
                    self._greeting = request_id
                await self._exchange(line, request_id, self._session if own is None else own)
        finally:
            if request_id in self._waiting:
                self._waiting.remove(request_id)
                self.backlog -= len(line)

    def _is_withdrawn_here(self, params: Json) -> bool:
        """Withdraw a request that was not sent, or by the end of its stream.

        Returns:
            False: its server must be told.
        """
        withdrawn = message_id(object_of(params).get("requestId"))
        if withdrawn is None or withdrawn not in self._waiting | self._modern:
            return False
        self._under_way[withdrawn].cancel()
        return True

    def _note_sent(self, method: Json, params: Json) -> None:
        if method == "notifications/initialized":
            self._greeted.set()
            if self._group is not None:
                self._group.start_soon(self._listen)
        elif method == "notifications/cancelled":
            withdrawn = message_id(object_of(params).get("requestId"))
            scope = None if withdrawn is None else self._under_way.get(withdrawn)
            if scope is not None:
                scope.cancel()

    async def _exchange(
        self, line: bytes, request_id: MessageId | None, own: Mapping[str, str]
    ) -> None:
        headers, backlog = {**BOTH, **own}, len(line)
        greeting = request_id if request_id == self._greeting else None
        try:
            async with self._requester.open("POST", self._url, headers, line) as response:
                self.backlog, backlog = self.backlog - backlog, 0
                # One that wants the headers of the newer era is none of the older transport.
                if greeting is not None and own is self._session and response.status in _OLDER:
                    await self._refused_greeting(response, line, greeting)
                    return
                self._check(response, in_session=own is self._session)
                if greeting is not None and len(said := response.header(SESSION)):
                    if not _fits_header(said):
                        raise DownstreamError(
                            f'server "{self._server}" names a session that no header can'
                        )
                    self._session[SESSION] = said
                if request_id is not None:
                    await self._answer(response, request_id)
        finally:
            self.backlog -= backlog

    async def _refused_greeting(
        self, response: Response, line: bytes, request_id: MessageId
    ) -> None:
        """Raise if a server refuses with JSON-RPC, as one of the older transport cannot."""
        body = b"" if response.is_packed else await self._requester.body(response)
        if response.is_json and is_answer_to(body, request_id):
            await self._inbound.put(body)
        else:
            self.older = line
            if self._group is not None:
                self._group.cancel_scope.cancel()

    def _check(self, response: Response, *, in_session: bool = True) -> None:
        """Refuse a response that is no answer.

        Args:
            response: of which only the head is there.
            in_session: whether its request was of the session: to another, 404 says that the
                server has no such method.

        Raises:
            DownstreamError: the response is none.
        """
        status = response.status
        if status == _NOT_FOUND and self.has_session and in_session:
            raise SessionForgottenError(
                f'server "{self._server}" has forgotten the session; it is greeted again, try again'
            )
        if status == UNAUTHORIZED or response.wants_more:
            raise ServerUnavailableError(
                f'server "{self._server}" wants a login that the operator has not given'
            )
        if response.is_packed:
            raise UnansweredError(
                f'server "{self._server}" compresses its answers, which was not asked for'
            )
        if status >= _REFUSED and not response.is_json:
            raise UnansweredError(
                f'server "{self._server}" answered with HTTP status {status}{advice_on(status)}'
            )

    # --- its answer

    async def _answer(self, response: Response, request_id: MessageId) -> None:
        if response.is_stream:
            await self._until_answered(response, request_id)
            return
        line = await self._requester.body(response)
        if not response.is_json or not is_answer_to(line, request_id):
            raise UnansweredError(
                f'server "{self._server}" answered with HTTP status {response.status} and no '
                f"answer to the request{advice_on(response.status)}"
            )
        await self._pass_on(line, request_id)

    async def _pass_on(self, line: bytes, answered: MessageId | None) -> None:
        """Hand a received message to the conversation, with the number of the request it answers.

        The answer to the greeting names the version of the session.
        """
        if answered is not None and answered == self._greeting:
            message = decode(line)
            result = None if isinstance(message, Malformed) else message.get("result")
            version = object_of(result).get("protocolVersion")
            if isinstance(version, str) and version in HANDSHAKE_VERSIONS:
                self._session[_VERSION] = version
        await self._inbound.put(line)

    async def _until_answered(self, response: Response, request_id: MessageId) -> None:
        """Read the stream of a request to its answer; take it up again where it breaks."""
        place = StreamPosition(resumes=request_id not in self._modern)
        lost = UnansweredError(f'server "{self._server}" ended its stream without an answer')
        if await self._read(response, place, request_id):
            return
        if place.last_event and not place.is_torn:
            self._inbound.note_stream_ended(of_call=True)
        while place.last_event and place.attempts < _ATTEMPTS:
            await anyio.sleep(place.pause())
            headers = {**EVENTS, **self._session, _LAST_EVENT: place.last_event}
            try:
                async with self._requester.open("GET", self._url, headers) as again:
                    self._check(again)
                    if not again.is_stream:
                        raise lost
                    if await self._read(again, place, request_id):
                        return
            except SessionForgottenError:
                raise ForgottenMeanwhileError(
                    f'server "{self._server}" has forgotten the session during the call'
                ) from None
            except ServerUnavailableError:
                pass  # it may be back for the next attempt
        raise lost

    async def _read(
        self, response: Response, place: "StreamPosition", request_id: MessageId | None
    ) -> bool:
        """Read a stream to its end, or to the answer. Return True if there it is."""
        found = False
        try:
            with anyio.CancelScope() as reading:
                async for event in response.events(self._requester.max_message):
                    place.note(event)
                    if found or event.event != "message" or not event.data:
                        continue
                    line = event.data.encode()
                    found = request_id is not None and is_answer_to(line, request_id)
                    await self._pass_on(line, request_id if found else None)
                    if found:
                        # Only a connection that was read to the end carries another request.
                        reading.deadline = anyio.current_time() + _REST
        except httpx2.SSEError:
            if not found:
                raise
        except httpx2.TransportError:
            # A broken stream is treated as one that ended: the rest can be asked for.
            place.is_torn = True
        return found

    # --- what it says of its own accord

    async def _listen(self) -> None:
        """Read the stream that belongs to no request, if the server has one."""
        place = StreamPosition()
        while True:
            headers: Mapping[str, str] = {**EVENTS, **self._session}
            if place.last_event:
                headers = {**headers, _LAST_EVENT: place.last_event}
            try:
                async with self._requester.open("GET", self._url, headers) as response:
                    if self._has_no_stream(response.status, place):
                        return
                    self._check(response)
                    if not response.is_stream or response.status >= _REFUSED:
                        return
                    self._note_open(place)
                    await self._read(response, place, None)
            except SessionForgottenError:
                await self._until_idle()
                self._inbound.end(_FORGOTTEN)
                return
            except ServerUnavailableError:
                pass  # as above
            except DownstreamError:
                # Too large, or no stream: the same event is not asked for again.
                place.last_event = ""
            await anyio.sleep(place.pause())

    def _note_open(self, place: "StreamPosition") -> None:
        if place.was_open and not place.last_event:
            self._inbound.note_stream_ended(of_call=False)
        place.was_open = True

    def _has_no_stream(self, status: int, place: "StreamPosition") -> bool:
        """Return whether a server says that it has no such stream.

        405, or 404 as frameworks do that serve `POST` alone. In a session whose stream was open,
        404 says that it is forgotten.
        """
        is_forgotten = self.has_session and place.was_open
        return status == _NO_METHOD or (status == _NOT_FOUND and not is_forgotten)

    async def _until_idle(self) -> None:
        """Wait, up to a deadline, for requests in progress: each may still get its answer."""
        with anyio.move_on_after(_LAST_ANSWERS):
            while self._under_way:  # noqa: ASYNC110  nobody tells
                await anyio.sleep(_LOOK_AGAIN)


def _fits_header(name: str) -> bool:
    return len(name) <= _LONGEST and name.isascii() and name.isprintable()


class StreamPosition:
    """The position of a stream at its end."""

    def __init__(self, *, resumes: bool = True) -> None:
        self._resumes = resumes
        self.last_event = ""
        self.attempts = 0
        self.was_open = False
        self.is_torn = False
        """Whether a connection broke; else the server ended its streams itself."""
        self._retry = _RETRY

    def note(self, event: httpx2.ServerSentEvent) -> None:
        """Take an event that has arrived."""
        if self._resumes and event.id and _fits_header(event.id):
            self.last_event = event.id
        if event.retry is not None:
            # As integers: one of 400 digits is no float.
            self._retry = min(max(event.retry, _SHORTEST_RETRY), int(1000 * _LONGEST_RETRY)) / 1000
        self.attempts = 0

    def pause(self) -> float:
        """Return seconds until the next attempt, which is counted."""
        self.attempts += 1
        longer: float = self._retry * (1 << min(self.attempts - 1, 10))
        return min(longer, _LONGEST_RETRY)
