"""`serve --http`: the front from its start to its end, and its address `/mcp`, streamable HTTP.

`POST` brings a message: of a session, or one that says itself who asks (`modern`). It goes to the
proxy of its session as it came. An answer that comes soon is JSON; one that takes longer, or that
follows other messages, is a stream. `GET` brings a stream of what belongs to no request, or the
rest of one that broke; `DELETE` ends the session. The only methods of MCP that are known here are
`initialize` and the withdrawal of a request.

Everything is read once before it listens, so that a mistake in a file stops the start; each session
reads it again, because it is a proxy of its own.
"""

import logging
import signal
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import AF_INET, socket
from typing import Final

import anyio
import uvicorn
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ironcurtain_proxy.agent.requests import INTERNAL_ERROR, ErrorReply, GivenAnswer, Message, read
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.reading.layers import (
    PRINCIPAL_VARIABLE,
    SESSION_VARIABLE,
    STATE_DIRECTORY,
)
from ironcurtain_proxy.config.settings import Settings, home_directory, load_settings
from ironcurtain_proxy.downstream.process import hide_from_debuggers, raise_limit
from ironcurtain_proxy.front.connections import (
    MEDIA_TYPE,
    WHOLE,
    FrontConnection,
    accepts,
    event_place,
    event_stream,
    joined,
    prefers_events,
    whole_answer,
)
from ironcurtain_proxy.front.guard import (
    JSON,
    LOOPBACK,
    FrontSettings,
    RefusalError,
    RequestGuard,
    hosts_of,
    listening,
    port_of,
    take_settings,
)
from ironcurtain_proxy.front.modern import GRACE, VERSION, deliver_alone, is_modern, refuse_mismatch
from ironcurtain_proxy.front.sessions import (
    OWN,
    READS_STREAM_ENDS,
    AgentSession,
    ProxyProcess,
    Sessions,
    TooManySessionsError,
    command_of,
)
from ironcurtain_proxy.jsonrpc.codec import Malformed, MessageId, decode, encode, message_id
from ironcurtain_proxy.jsonrpc.pipes import STREAM_ENDED, UNREAD
from ironcurtain_proxy.model.operation import HANDSHAKE_VERSIONS
from ironcurtain_proxy.own_process import configure_logging, say
from ironcurtain_proxy.wiring.serving import refuse_what_is_not_there

# --- messages


SESSION: Final = "mcp-session-id"

_START: Final = 60.0
"""Seconds for a proxy to start and to answer `initialize`."""
_BLANKS: Final = bytes.maketrans(b"\n\r", b"  ")


async def initialize(
    request: Request, sessions: Sessions, principal: str, found: Message | GivenAnswer, body: bytes
) -> Response:
    """Begin a session with its first message. One whose client has gone meanwhile ends.

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
        session.version = "" if await request.is_disconnected() else _agreed(line)
    finally:
        if not session.version:
            sessions.end(session)
    if line is None:
        raise _unavailable("the session did not start", found.id)
    return Response(
        line, media_type=JSON, headers={SESSION: session.name} if session.version else {}
    )


async def deliver(
    headers: Headers,
    session: AgentSession,
    found: Message | GivenAnswer,
    body: bytes,
    held: ExitStack,
) -> Response:
    """Hand a message to a session. Closes `held` once it is on its way.

    Raises:
        RefusalError: its id is under way.
    """
    if isinstance(found, GivenAnswer) or found.id is None:
        if isinstance(found, Message) and found.method in {STREAM_ENDED, UNREAD}:
            return Response(status_code=202)  # the proxy would take it for the front's own word
        await _send(session, body)
        if isinstance(found, Message) and found.method == "notifications/cancelled":
            session.withdraw(message_id(found.params.get("requestId")))
        return Response(status_code=202)
    if session.has(found.id):
        await _note_unread(session, "a request with this id is under way")
        raise RefusalError(400, "a request with this id is under way", request_id=found.id)
    stream = session.begin(found)
    follower = stream.follow()
    first: bytes | None = None
    try:
        await _send(session, body)
        held.close()
        if not prefers_events(headers):
            with anyio.move_on_after(GRACE):
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


async def _note_unread(session: AgentSession | None, why: str) -> None:
    """Have the session's proxy, if there is one, record a message that it does not get."""
    if session is not None:
        await _send(session, encode({"jsonrpc": "2.0", "method": UNREAD, "params": {"why": why}}))


def _agreed(line: bytes | None) -> str:
    """Return the protocol version in the answer to `initialize`, or empty if it was refused."""
    message = None if line is None else decode(line)
    result = None if message is None or isinstance(message, Malformed) else message.get("result")
    return str(result.get("protocolVersion", "")) if isinstance(result, dict) else ""


def _unavailable(words: str, request_id: MessageId) -> RefusalError:
    return RefusalError(503, words, code=INTERNAL_ERROR, request_id=request_id)


# --- app


PATH: Final = "/mcp"
_LAST_EVENT: Final = "last-event-id"
_METHODS: Final = ("GET", "POST", "DELETE")
_PLAIN: Final = {"content-encoding": "identity", "transfer-encoding": "chunked"}
"""Headers of a body as it is: a router that unpacks would read another one."""


class Front:
    """The ASGI application."""

    def __init__(self, guard: RequestGuard, sessions: Sessions, limit: int) -> None:
        """Keep the parts. No session is started.

        Args:
            guard: the checks of every request.
            sessions: the sessions of all agents.
            limit: the most bytes of a message.
        """
        self._guard = guard
        self._sessions = sessions
        self._limit = limit
        self._large: dict[str, anyio.Lock] = {}
        """Held for the one large message of a principal that belongs to no session."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            response = await self._answer(Request(scope, receive))
        except RefusalError as refusal:
            response = refusal.response()
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        principal = self._guard.admit(request.headers)
        if request.scope["path"] != PATH:  # `request.url` would put the whole address together
            raise RefusalError(404, f"there is nothing here but {PATH}")
        if request.method not in _METHODS:
            allowed = ", ".join(_METHODS)
            raise RefusalError(405, f"{allowed} are served", headers={"Allow": allowed})
        has_session = request.headers.get(VERSION, HANDSHAKE_VERSIONS[0]) in HANDSHAKE_VERSIONS
        if not has_session and request.method != "POST":
            words = "this version of the protocol has no sessions"
            raise RefusalError(405, words, headers={"Allow": "POST"})
        session = self._session(request.headers, principal) if has_session else None
        if request.method == "POST":
            return await self._post(request, principal, session)
        if session is None:
            raise RefusalError(400, f"{SESSION} is missing: initialize first")
        if request.method == "GET":
            return _stream(request.headers, session)
        self._sessions.end(session)
        return Response(status_code=200)

    def _session(self, headers: Headers, principal: str) -> AgentSession | None:
        if any(len(headers.getlist(one)) > 1 for one in (SESSION, VERSION)):
            raise RefusalError(400, f"{SESSION} and {VERSION} may be said once")
        name = headers.get(SESSION)
        session = None if name is None else self._sessions.find(principal, name)
        if name is not None and session is None:
            raise RefusalError(404, "there is no such session (any more): initialize again")
        return session

    async def _post(
        self, request: Request, principal: str, session: AgentSession | None
    ) -> Response:
        headers = request.headers
        kinds = headers.getlist("content-type")
        if len(kinds) != 1 or kinds[0].partition(";")[0].strip().lower() != JSON:
            raise RefusalError(415, f"Content-Type must be {JSON}")
        if any(joined(headers, name) not in {"", plain} for name, plain in _PLAIN.items()):
            raise RefusalError(415, "the body must not be compressed")
        if not (accepts(headers, JSON) and accepts(headers, MEDIA_TYPE)):
            raise RefusalError(406, f"Accept must name {JSON} and {MEDIA_TYPE}")
        with ExitStack() as held:
            if WHOLE in request.scope.get("extensions", {}):
                body = await _whole_body(request, self._limit)
            else:
                own = self._large.setdefault(principal, anyio.Lock())
                large = own if session is None else session.reading_large
                body = await read_body(request, self._limit, large, held)
            found = read(body)
            if isinstance(found, ErrorReply):
                await _note_unread(session, found.text)
                raise RefusalError(400, found.text, code=found.code, request_id=found.id)
            if is_modern(headers, found):
                return await deliver_alone(headers, self._sessions, principal, found, held)
            refuse_mismatch(headers, found, in_session=True)
            if session is None:
                return await initialize(request, self._sessions, principal, found, body)
            return await deliver(headers, session, found, body, held)


def _stream(headers: Headers, session: AgentSession) -> Response:
    if not accepts(headers, MEDIA_TYPE):
        raise RefusalError(406, f"Accept must name {MEDIA_TYPE}")
    named = headers.get(_LAST_EVENT)
    place = (OWN, None) if named is None else event_place(named)
    stream = None if place is None else session.stream(place[0])
    if place is None or stream is None:
        raise RefusalError(400, f"{_LAST_EVENT} names nothing that can be read again")
    if place[1] is None and stream.is_followed:
        raise RefusalError(409, "this stream is open already")
    follower = stream.follow(stream.sent if place[1] is None else place[1])
    return event_stream(stream, follower, session.version, {SESSION: session.name})


async def _whole_body(request: Request, limit: int) -> bytes:
    """Return the body that is there already: it needs no deadline."""
    message = await request.receive()
    if message["type"] != "http.request":
        raise ClientDisconnect
    body: bytes = message["body"]
    if len(body) > limit:
        raise _too_large(limit)
    return body


_SMALL: Final = 64 * 1024
_SLOWEST: Final = 60.0
"""Seconds for a body, however large."""


async def read_body(request: Request, limit: int, large: anyio.Lock, held: ExitStack) -> bytes:
    """Return the whole body.

    Args:
        request: of which nothing was read yet.
        limit: bytes.
        large: held from then on for one that is not small, so that many cannot fill the memory:
            neither while they are read, nor while their proxy does not take them.
        held: gives `large` back at its end.

    Raises:
        RefusalError: it is larger than the limit, or takes too long.
        ClientDisconnect: the client has gone.
    """
    said = request.headers.get("content-length", "")
    # There may be zeros before it, more than Python reads.
    if said.isdecimal() and int(said[-18:]) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(_SLOWEST):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
                if size > _SMALL and size - len(part) <= _SMALL:
                    await large.acquire()
                    held.callback(large.release)
    except TimeoutError:
        raise RefusalError(408, "the message did not come to its end") from None
    return b"".join(parts)


def _too_large(limit: int) -> RefusalError:
    return RefusalError(413, f"message is larger than {limit} bytes")


# --- serving


_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_KEEP_ALIVE: Final = 60
"""Seconds for which a connection without a request stays open."""
_MARGIN: Final = 10.0
"""Seconds for a proxy to end its servers, besides the time for open calls."""


def serve_http(
    environ: MutableMapping[str, str], config: Path | None, public_names: Sequence[str]
) -> int:
    """Serve until a signal comes.

    Returns:
        The exit code: 128 + N after signal N.

    Raises:
        ConfigurationError: something cannot be used; nothing was started.
    """
    hide_from_debuggers()
    raise_limit()
    front = take_settings(environ, home_directory(environ) / STATE_DIRECTORY, public_names)
    # With the secrets, which `load_settings` takes away: each session needs them.
    inherited = dict(environ)
    settings = load_settings(environ, config)
    for problem in (*settings.warnings, *load_policy(settings).warnings):
        say(str(problem))
    refuse_what_is_not_there(settings)
    finish_logging = configure_logging(settings.session_log)
    # It warns about requests of strangers, about which nobody can do anything.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        with listening(front) as sockets:
            for line in _told(front, sockets):
                say(line)
            return anyio.run(_live, front, settings, inherited, config, sockets)
    finally:
        finish_logging()


def _told(front: FrontSettings, sockets: Sequence[socket]) -> Iterator[str]:
    for one in sockets:
        if one.family == AF_INET:
            yield f"MCP is served at http://{LOOPBACK}:{port_of(one)}{PATH}"
    if front.socket is not None:
        yield f"MCP is served at {PATH} of the socket {front.socket}"
    if front.tokens_file is not None:
        yield f"the tokens are in {front.tokens_file}: Authorization: Bearer TOKEN"


async def _live(
    front: FrontSettings,
    settings: Settings,
    inherited: Mapping[str, str],
    config: Path | None,
    sockets: Sequence[socket],
) -> int:
    limit = settings.max_message_bytes
    command = command_of(config)

    async def start(name: str, principal: str) -> ProxyProcess:
        # Twice the limit: an answer has a few words around what a server sent.
        environ = {**inherited, SESSION_VARIABLE: name, PRINCIPAL_VARIABLE: principal}
        return await ProxyProcess.start(command, environ, 2 * limit)

    sessions = Sessions(
        start, max_waiting=limit + limit // 2, patience=settings.drain_seconds + _MARGIN
    )
    guard = RequestGuard(front.principals, hosts_of(sockets, front.public_names))
    server = _Server(
        uvicorn.Config(
            Front(guard, sessions, limit),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=FrontConnection,
            ws="none",
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=1,
        )
    )
    ended_by: list[int] = []
    async with anyio.create_task_group() as tasks:
        await tasks.start(sessions.run)
        tasks.start_soon(_end_on_signal, server, sessions, ended_by)
        await server.serve(sockets=[*sockets])
        tasks.cancel_scope.cancel()
    return 128 + ended_by[0] if ended_by else 0


class _Server(uvicorn.Server):
    """A server that leaves signals to `serve_http`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signal."""
        yield


async def _end_on_signal(server: uvicorn.Server, sessions: Sessions, ended_by: list[int]) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as received:
        async for number in received:
            ended_by.append(number)
            server.should_exit = True
            sessions.stop()  # which ends their streams: no connection is left to wait for
