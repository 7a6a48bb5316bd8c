"""Messages that name their version themselves: each `POST` is one request and its answer.

There is no session. All such requests of a principal go to one proxy of its own, whose name and
agreements are the principal's (docs/adr/0012). Clients of a principal number their requests alike,
so each request has a number of the front's on its way to the proxy and back. A client that closes
its response withdraws the request.

The headers that routers read must say what the body says: else a router would let through what it
refuses.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from ironcurtain_proxy.agent.replies import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    unsupported_version,
)
from ironcurtain_proxy.agent.replies import is_modern as names_its_version
from ironcurtain_proxy.agent.requests import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    GivenAnswer,
    Message,
)
from ironcurtain_proxy.front.connections import BEAT, HEADERS, MEDIA_TYPE, StreamReader, lines_of
from ironcurtain_proxy.front.guard import JSON, RefusalError
from ironcurtain_proxy.front.sessions import AgentSession, Sessions, TooManySessionsError
from ironcurtain_proxy.jsonrpc.codec import (
    INVALID_PARAMS,
    NAMING,
    PARAMETER,
    Malformed,
    MessageId,
    decode,
    decoded,
    encode,
    written_id,
)
from ironcurtain_proxy.jsonrpc.pipes import OF_REQUEST
from ironcurtain_proxy.model.operation import (
    HANDSHAKE_VERSIONS,
    HEADERS_KEY,
    SUBSCRIPTION_KEY,
    VERSION_KEY,
    VERSIONS,
)
from ironcurtain_proxy.model.values import object_of

if TYPE_CHECKING:
    from ironcurtain_proxy.model.values import Json

VERSION: Final = "mcp-protocol-version"
_METHOD: Final = "mcp-method"
_NAME: Final = "mcp-name"
_FAULTS: Final = (
    *(PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS),
    *(HEADER_MISMATCH, UNSUPPORTED_VERSION, MISSING_CAPABILITY),
)
_STATUS: Final[Mapping[object, int]] = {**dict.fromkeys(_FAULTS, 400), METHOD_NOT_FOUND: 404}
"""The status of an answer that is an error, by its code; 200 for any other."""

GRACE: Final = 1.0
"""Seconds in which an answer is awaited before a stream is opened, which has no status any more."""
_START: Final = 20.0
"""Seconds in which the first answer of a proxy is awaited."""
_HEAD: Final = 200
"""Bytes of a line in which the id of an answer stands."""


def is_modern(headers: Headers, found: Message | GivenAnswer) -> bool:
    """Return whether a message of no session names its version itself, in its head or its body."""
    if headers.get(VERSION, HANDSHAKE_VERSIONS[0]) not in HANDSHAKE_VERSIONS:
        return True
    return isinstance(found, Message) and names_its_version(found.method, found.params)


def refuse_mismatch(
    headers: Headers, found: Message | GivenAnswer, *, in_session: bool = False
) -> None:
    """Refuse a message whose headers do not say what its body says.

    Args:
        headers: of the message.
        found: what its body says; an answer names no method.
        in_session: whether it belongs to a session: such a message needs no headers, and what it
            has must be true.

    Raises:
        RefusalError: a header is missing, there twice, or says something else.
    """
    if isinstance(found, GivenAnswer):
        return
    said = _meta(found).get(VERSION_KEY)
    if said is None and headers.get(VERSION) in VERSIONS:
        return  # the proxy says what is missing
    wanted: dict[str, Json] = {_METHOD: found.method, **({} if in_session else {VERSION: said})}
    key = NAMING.get(found.method)
    if key is not None and found.params.get(key) is not None:
        wanted[_NAME] = found.params[key]
    for header, value in wanted.items():
        given = headers.getlist(header)
        if in_session and not given:
            continue
        if len(given) != 1 or decoded(given[0].strip(" \t")) != value:
            words = f"{header} must be there once and say what the body says"
            raise RefusalError(400, words, code=HEADER_MISMATCH, request_id=found.id)
    if isinstance(said, str) and said not in VERSIONS:
        error = unsupported_version(said)["error"]
        raise RefusalError(400, "", error=error, request_id=found.id)


async def deliver_alone(
    headers: Headers,
    sessions: Sessions,
    principal: str,
    found: Message | GivenAnswer,
    held: ExitStack,
) -> Response:
    """Hand a request to the proxy of its principal, and answer it. Closes `held` in between.

    Raises:
        RefusalError: its headers say something else, it is no request, or no proxy can begin.
    """
    if isinstance(found, GivenAnswer):
        raise RefusalError(400, "a request is needed, or a notification")
    if found.id is None:
        given = headers.get(VERSION, "")
        if given not in VERSIONS:
            raise RefusalError(400, "", error=unsupported_version(given)["error"])
        # A notification withdraws nothing here: it could be another client's request.
        return Response(status_code=202)
    refuse_mismatch(headers, found)
    try:
        session = await sessions.shared(principal)
    except (TooManySessionsError, OSError):
        raise RefusalError(
            503, "a proxy cannot be started now", code=INTERNAL_ERROR, request_id=found.id
        ) from None
    return await _Exchange(session, found, found.id).answer(found, _arguments_in(headers), held)


class _Exchange:
    """One request and its answer."""

    def __init__(self, session: AgentSession, found: Message, request_id: MessageId) -> None:
        # Not the request itself: it may be large, and its answer may take long.
        self._session = session
        self._id = request_id
        self._number = session.next_number()
        self._token = _meta(found).get("progressToken")

    def _numbered(self, found: Message, arguments: "Mapping[str, Json]") -> Message:
        """Return a request as the proxy gets it."""
        meta = _meta(found)
        own: dict[str, Json] = {"progressToken": self._number} if "progressToken" in meta else {}
        if found.method == "tools/call":
            # Whatever the client has written there: the proxy takes the front's word.
            own[HEADERS_KEY] = dict(arguments)
        params = {**found.params, "_meta": {**meta, **own}} if meta else found.params
        return Message(found.method, params, self._number, found.size)

    async def answer(
        self, found: Message, arguments: "Mapping[str, Json]", held: ExitStack
    ) -> Response:
        """Send the request, and give its response."""
        sent = self._numbered(found, arguments)
        stream = self._session.begin(sent)
        follower = stream.follow()
        line = {"jsonrpc": "2.0", "id": sent.id, "method": sent.method, "params": sent.params}
        first: bytes | None = None
        try:
            with suppress(BrokenPipeError):  # it has ended, which its stream says
                await self._session.send(encode(line))
            held.close()
            # The first answer of a proxy comes after its start.
            with anyio.move_on_after(GRACE if self._session.has_answered else _START):
                first = await follower.next()
        except BaseException:
            self._withdraw(follower)
            raise
        if first is not None and stream.is_over and follower.number > stream.last:
            self._session.forget(stream)
            follower.leave()
            return Response(self._theirs(first), self._status(first), media_type=JSON)
        return StreamingResponse(
            self._events(follower, first), media_type=MEDIA_TYPE, headers=HEADERS
        )

    async def _events(self, follower: StreamReader, first: bytes | None) -> AsyncIterator[bytes]:
        try:
            async for line in lines_of(follower, first):
                if line is None:
                    yield BEAT
                else:
                    yield b"event: message\ndata: %b\n\n" % self._theirs(line)
        finally:
            self._withdraw(follower)

    def _withdraw(self, follower: StreamReader) -> None:
        """Withdraw the request, unless it is answered."""
        follower.leave()
        if self._session.has(self._number):
            params: Json = {"requestId": self._number, "reason": "the client closed its response"}
            notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            self._session.withdraw(self._number)
            with suppress(BrokenPipeError):
                self._session.process.out.write(encode(notice))

    def _theirs(self, line: bytes) -> bytes:
        """Return a message of the proxy's with the client's own id and token."""
        answer = b'{"jsonrpc":"2.0","id":%d,' % self._number
        if line.startswith(answer):
            return b'{"jsonrpc":"2.0","id":%b,%b' % (written_id(self._id), line[len(answer) :])
        message = decode(line)
        if isinstance(message, Malformed):
            return line
        params = message.get("params")
        if isinstance(params, dict):
            params.pop(OF_REQUEST, None)
            if "progressToken" in params:
                params["progressToken"] = self._token
            meta = params.get("_meta")
            if isinstance(meta, dict) and SUBSCRIPTION_KEY in meta:
                meta[SUBSCRIPTION_KEY] = self._id
        return encode(message).rstrip(b"\n")

    def _status(self, line: bytes) -> int:
        if b'"error"' not in line[:_HEAD]:
            return 200
        message = decode(line)
        error = None if isinstance(message, Malformed) else message.get("error")
        return _STATUS.get(error.get("code"), 200) if isinstance(error, dict) else 200


def _arguments_in(headers: Headers) -> "dict[str, Json]":
    """Return the values of all headers that repeat arguments, by the name in lower case."""
    names = {name for name in headers if name.startswith(PARAMETER)}
    return {name: [value.strip(" \t") for value in headers.getlist(name)] for name in names}


def _meta(found: Message) -> "dict[str, Json]":
    return object_of(found.params.get("_meta"))
