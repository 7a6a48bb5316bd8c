"""The sessions of the front: one proxy for each, in a process of its own.

A session is `ironcurtain-proxy serve` on pipes (docs/adr/0012): what one agent does, holds or
breaks is nothing to another. Its name is that of its principal and 128 random bits. The front knows
how the process is started and ended, and of JSON-RPC only what says on which stream a message goes;
the proxy behind it decides.
"""

import logging
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import Process, TaskGroup, TaskStatus
from msgspec import MsgspecError, Raw, Struct, field
from msgspec.json import Decoder

from ironcurtain_proxy.agent.requests import INTERNAL_ERROR, Message
from ironcurtain_proxy.front.connections import Stream
from ironcurtain_proxy.jsonrpc.codec import MessageId, encode, message_id, recover_id
from ironcurtain_proxy.jsonrpc.pipes import (
    OF_REQUEST,
    STREAM_ENDED,
    LineReader,
    Oversize,
    open_wire,
)
from ironcurtain_proxy.jsonrpc.sending import LineWriter
from ironcurtain_proxy.model.operation import SUBSCRIPTION_KEY

if TYPE_CHECKING:
    from ironcurtain_proxy.model.values import Json


# --- process


# -P: a package of our name in the working directory, which servers write to, is not imported.
PROGRAM: Final = (sys.executable, "-P", "-m", "ironcurtain_proxy", "serve")

_TERM: Final = 10.0
"""Seconds from SIGTERM to SIGKILL, in which the proxy ends its servers."""


class ProxyProcess:
    """A running proxy with its pipes."""

    def __init__(self, process: Process, lines: LineReader, out: LineWriter) -> None:
        self._process = process
        self.lines = lines
        self.out = out

    @classmethod
    async def start(
        cls, command: Sequence[str], environ: Mapping[str, str], max_line: int
    ) -> "ProxyProcess":
        """Start a proxy without a terminal: nobody could tell which session asks there.

        Raises:
            OSError: it cannot be started.
        """
        their_in, our_out = os.pipe()
        try:
            our_in, their_out = os.pipe()
        except OSError:
            os.close(their_in)
            os.close(our_out)
            raise
        try:
            process = await anyio.open_process(
                list(command),
                stdin=their_in,
                stdout=their_out,
                stderr=None,
                env=dict(environ),
                start_new_session=True,
            )
        except BaseException:
            os.close(our_in)
            os.close(our_out)
            raise
        finally:
            os.close(their_in)
            os.close(their_out)
        lines, out = await open_wire(our_in, our_out, max_line=max_line)
        return cls(process, lines, out)

    def close_input(self) -> None:
        """Close the input of the proxy: it finishes open calls, and ends."""
        self.out.abort()

    async def end(self, patience: float) -> None:
        """Wait for the end of the process; after a time request it, after another enforce it."""
        self.close_input()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(patience):
                await self._process.wait()
            for end, seconds in ((self._process.terminate, _TERM), (self._process.kill, inf)):
                if self._process.returncode is None:
                    with suppress(ProcessLookupError):
                        end()
                    with anyio.move_on_after(seconds):
                        await self._process.wait()
            self.lines.close()


def command_of(config: Path | None) -> list[str]:
    """Return the command of a session.

    Args:
        config: the configuration file that was named, if one was.
    """
    return [*PROGRAM, *([] if config is None else ["--config", str(config.absolute())])]


# --- session


OWN: Final = ""
"""Stands for the stream of messages that belong to no request. No id of an event names it so."""

_NAMES: Final = 900_000_000
"""Where the names of a session's streams begin: an id of another session's event names nothing."""

_FINISHED: Final = 16
"""Streams that are kept after their last message, because a connection may have broken."""

_SHORT: Final = 64 * 1024
"""Bytes of a message that is handed out before the next one is read, without a turn of its own."""

_UNHEARD: Final = 1 << 20
"""Bytes of messages without a request that are kept for a client that may begin to listen."""

_ASIDE: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""Notifications that belong to no request."""

_GONE: Final = {"code": INTERNAL_ERROR, "message": "the session ended before the answer"}
_TOO_LARGE: Final = {"code": INTERNAL_ERROR, "message": "the answer is too large"}


class _Envelope(Struct):
    id: int | str | float | None = None
    method: str | None = None
    params: Raw = Raw()


class _Meta(Struct):
    subscription: int | str | float | None = field(default=None, name=SUBSCRIPTION_KEY)


class _Progress(Struct):
    progressToken: int | str | float | None = None  # noqa: N815  as on the wire
    request: int | str | float | None = field(default=None, name=OF_REQUEST)
    meta: _Meta | None = field(default=None, name="_meta")


_envelope: Final = Decoder(_Envelope).decode
_progress: Final = Decoder(_Progress).decode


def _named_in(params: Raw) -> _Progress:
    """Return what a notification names; nothing if its server has written something else there."""
    try:
        return _progress(params)
    except (MsgspecError, ValueError, RecursionError):
        return _Progress()


class AgentSession:
    """One session: an agent, its proxy, and the streams between them."""

    def __init__(self, name: str, principal: str, process: ProxyProcess, max_waiting: int) -> None:
        """Begin without requests.

        Args:
            name: what the client calls it by.
            principal: whose it is.
            process: its proxy.
            max_waiting: bytes that may wait for the client.
        """
        self.name = name
        self.principal = principal
        self.process = process
        self.version = ""
        """The agreed version of the protocol, or empty if there is none yet."""
        self.used_at = time.monotonic()
        """The last request or answer, by the monotonic clock."""
        self.reading_large = anyio.Lock()
        """The lock of the one request whose large body is being read."""
        self._max_waiting = max_waiting
        self._last = secrets.randbelow(_NAMES)
        self._own = Stream(str(self._last), self._note_taken)
        self._requests: dict[MessageId, Stream] = {}
        self._tokens: dict[MessageId, MessageId] = {}
        """The ids of requests with progress, by their progress tokens."""
        self._finished: dict[str, Stream] = {}
        self._taken = anyio.Event()
        self._has_ended = False
        self._number = 0
        self.has_answered = False
        """Whether its proxy has answered a request."""
        self.is_shared = False
        """Whether it has no client of its own: its requests come one by one, from any."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is open and nobody listens."""
        return not self._requests and not self._own.is_followed

    @property
    def has_ended(self) -> bool:
        """Whether its proxy has ended."""
        return self._has_ended

    # --- from the agent

    def next_number(self) -> int:
        """Return a fresh id for a request."""
        self._number += 1
        return self._number

    def has(self, request_id: MessageId) -> bool:
        """Return whether a request with this id is open."""
        return request_id in self._requests

    def begin(self, message: Message) -> Stream:
        """Return the stream of a request. The caller sends the request afterwards.

        Where the proxy has ended since the request came, its stream says so.
        """
        if message.id is None:
            raise TypeError("a request has an id")
        self._last += 1
        stream = self._requests[message.id] = Stream(str(self._last), self._note_taken)
        token = _token(message)
        if token is not None:
            self._tokens[token] = message.id
        if self._has_ended:
            self._fail(message.id, _GONE)
        return stream

    async def send(self, line: bytes) -> None:
        """Hand a message to the proxy.

        Raises:
            BrokenPipeError: it has ended.
        """
        self.used_at = time.monotonic()
        await self.process.out.send(line)

    def withdraw(self, request_id: MessageId | None) -> None:
        """End the stream of a request that its client has withdrawn."""
        if request_id is not None and request_id in self._requests:
            self._finish(request_id).end()

    def stream(self, name: str) -> Stream | None:
        """Return a stream by its name, or None if it is unknown or forgotten."""
        if name in {OWN, self._own.name}:
            return self._own
        for stream in self._requests.values():
            if stream.name == name:
                return stream
        return self._finished.get(name)

    def forget(self, stream: Stream) -> None:
        """Forget a stream that was answered as JSON: nobody can ask for its events again."""
        if not stream.unsent:
            self._finished.pop(stream.name, None)

    # --- to the agent

    async def run(self) -> None:
        """Distribute the proxy's messages until it has ended."""
        self.process.lines.offer_to(self._hand_out_at_once)
        try:
            while (line := await self.process.lines.receive()) is not None:
                if isinstance(line, Oversize):
                    self._fail(recover_id(line.head, line.tail), _TOO_LARGE)
                else:
                    self._hand_out(line)
                    await self._until_it_fits()
        finally:
            self._has_ended = True
            for request_id in [*self._requests]:
                self._fail(request_id, _GONE)
            self._own.end()

    def _hand_out_at_once(self, line: bytes) -> bool:
        """Hand out a short message as it arrives, unless a client is behind. False: `run` does."""
        if len(line) > _SHORT or self._waiting():
            return False
        self._hand_out(line)
        return True

    def _fail(self, request_id: MessageId | None, error: Mapping[str, object]) -> None:
        """Answer a request that gets no answer of the proxy's."""
        if request_id is not None and request_id in self._requests:
            answer = {"jsonrpc": "2.0", "id": request_id, "error": error}
            self._finish(request_id).put(encode(answer).rstrip(b"\n"), is_last=True)

    def _hand_out(self, line: bytes) -> None:
        try:
            found = _envelope(line)
        except (MsgspecError, ValueError):
            return  # no message: our own process writes none such
        except RecursionError:
            # A server may nest its answer deeper than this reader can follow.
            found = _Envelope(id=recover_id(line, line))
        if found.method is None:
            self.has_answered = True
            given = message_id(found.id)
            if given is not None and given in self._requests:
                self._finish(given).put(line, is_last=True)
            return
        if found.method == STREAM_ENDED:
            self._end_early()
            return
        stream = self._target(found.method, found.params) if self.is_shared else None
        if stream is None and self.is_shared:
            return  # its request has ended
        stream = stream or self._stream_of(found.method, found.params)
        if stream is self._own and not stream.is_followed and stream.unsent > _UNHEARD:
            self._own = stream = Stream(self._own.name, self._note_taken)
        stream.put(line)

    def _end_early(self) -> None:
        """End the stream of the one open request, as its server did: an answer is not near.

        With several open requests nothing says whose it was, and no stream needs to end.
        """
        if len(self._requests) == 1:
            next(iter(self._requests.values())).end_early()

    def _stream_of(self, method: str, params: Raw) -> Stream:
        """Return the stream of a message that no request of the agent asked for.

        A message that belongs to a call goes to the stream of the call's answer. Progress names its
        call. Any other message is taken for one of the newest open call; without an open call, it
        goes to the session's own stream.
        """
        if method == "notifications/progress":
            token = _named_in(params).progressToken
            request_id = None if token is None else self._tokens.get(token)
            if request_id is not None:
                return self._requests[request_id]
        if not self._requests or (method in _ASIDE and self._own.is_followed):
            return self._own
        return next(reversed(self._requests.values()))

    def _target(self, method: str, params: Raw) -> Stream | None:
        """Return the stream of the request that a notification names, or None if it has ended.

        The proxy names it in one way for each kind: a server's params may hold the other keys, too.
        """
        said = _named_in(params)
        if method == "notifications/progress":
            named = said.progressToken
        elif method == "notifications/message":
            named = said.request
        else:
            named = None if said.meta is None else said.meta.subscription
        return None if named is None else self._requests.get(named)

    def _finish(self, request_id: MessageId) -> Stream:
        stream = self._requests.pop(request_id)
        self._tokens = {key: one for key, one in self._tokens.items() if one != request_id}
        self._finished[stream.name] = stream
        if len(self._finished) > _FINISHED:
            gone = next((one for one in self._finished.values() if not one.unsent), None)
            self._finished.pop((gone or next(iter(self._finished.values()))).name)
        self.used_at = time.monotonic()
        return stream

    async def _until_it_fits(self) -> None:
        """Wait while the client does not keep up. Messages that nobody follows are dropped."""
        while (waiting := self._waiting()) and sum(
            one.unsent for one in waiting
        ) > self._max_waiting:
            left = next((one for one in waiting if not one.is_followed), None)
            if left is not None:
                left.shed()
                continue
            self._taken = anyio.Event()
            await self._taken.wait()

    def _waiting(self) -> list[Stream]:
        every = [*self._finished.values(), *self._requests.values(), self._own]
        return [one for one in every if one.unsent]

    def _note_taken(self) -> None:
        self._taken.set()


def _token(message: Message) -> "MessageId | None":
    meta: Json = message.params.get("_meta")
    return message_id(meta.get("progressToken")) if isinstance(meta, dict) else None


# --- sessions


MOST: Final = 32
"""The most sessions of one principal at once: each is a process, with servers of its own."""

_IDLE: Final = 30 * 60.0
"""Seconds without use after which a session ends."""

_UNUSED: Final = 60.0
"""Seconds without use after which a session makes way for a new one of its principal, if that has
as many as it may: some clients leave without ending theirs."""

_LOOK: Final = 30.0

_log: Final = logging.getLogger(__name__)

READS_STREAM_ENDS: Final = encode({"jsonrpc": "2.0", "method": STREAM_ENDED})
"""What the front says first to each proxy, which is then told what only a front reads."""

_IS_SHARED: Final = encode({"jsonrpc": "2.0", "method": STREAM_ENDED, "params": {"shared": True}})
"""The same to a proxy whose requests come from many clients."""

Starter = Callable[[str, str], Awaitable[ProxyProcess]]
"""Starts the proxy of a session: its name, and whose it is."""


class TooManySessionsError(Exception):
    """A principal has as many sessions as it may have."""


class Sessions:
    """The sessions, by their names."""

    def __init__(self, start: Starter, *, max_waiting: int, patience: float) -> None:
        """Begin without sessions.

        Args:
            start: starts the proxy of a session.
            max_waiting: bytes that may wait for a client.
            patience: seconds that a proxy has to finish once its agent has gone.
        """
        self._start = start
        self._max_waiting = max_waiting
        self._patience = patience
        self._sessions: dict[str, AgentSession] = {}
        self._starting: dict[str, int] = {}
        self._shared: dict[str, AgentSession] = {}
        self._beginning: dict[str, anyio.Lock] = {}
        self._tasks: TaskGroup | None = None
        """The tasks of the sessions, or None if `run` is not running."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the sessions until cancelled; then end all of them."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                while True:
                    await anyio.sleep(_LOOK)
                    for session in self._unused(self._sessions.values(), _IDLE):
                        self.end(session)
        finally:
            self._tasks = None
            self._sessions.clear()

    def stop(self) -> None:
        """End all sessions, and refuse new ones."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        self._tasks = None

    async def begin(self, principal: str) -> AgentSession:
        """Begin a session.

        Raises:
            TooManySessionsError: its principal has too many, or the front ends.
            OSError: its proxy cannot be started.
        """
        own = [one for one in self._sessions.values() if one.principal == principal]
        tasks = self._tasks
        if len(own) + self._starting.get(principal, 0) >= MOST:
            unused = self._unused(own, _UNUSED)
            if not unused:
                raise TooManySessionsError
            self.end(min(unused, key=lambda one: one.used_at))
        if tasks is None:
            raise TooManySessionsError
        name = f"{principal}-{secrets.token_hex(16)}"
        self._starting[principal] = self._starting.get(principal, 0) + 1
        try:
            process = await self._start(name, principal)
        finally:
            self._starting[principal] -= 1
        if self._tasks is not tasks:  # the front has begun to end meanwhile
            await process.end(0)
            raise TooManySessionsError
        session = AgentSession(name, principal, process, self._max_waiting)
        self._sessions[name] = session
        tasks.start_soon(self._live, session)
        return session

    async def shared(self, principal: str) -> AgentSession:
        """Return the one session of a principal whose requests belong to no session of a client.

        Raises:
            TooManySessionsError: its principal has too many, or the front ends.
            OSError: its proxy cannot be started.
        """
        async with self._beginning.setdefault(principal, anyio.Lock()):
            session = self._shared.get(principal)
            if session is None or session.has_ended or session.name not in self._sessions:
                session = await self.begin(principal)
                session.is_shared = True
                session.process.out.write(_IS_SHARED)
                self._shared[principal] = session
            session.used_at = time.monotonic()
            return session

    def find(self, principal: str, name: str) -> AgentSession | None:
        """Return a session of a principal.

        It is None if there is none of this name, or it is another's, or no client's own: in that
        one, requests have numbers of the front's, and an end would be the end of all.
        """
        session = self._sessions.get(name)
        if session is None or session.principal != principal or session.is_shared:
            return None
        return session

    def end(self, session: AgentSession) -> None:
        """End a session. Open calls are answered first, in a bounded time."""
        if self._sessions.pop(session.name, None) is not None:
            session.process.close_input()

    async def _live(self, session: AgentSession) -> None:
        patience = 0.0  # cancelled: the front itself ends
        try:
            await session.run()
            patience = self._patience
        except Exception:  # noqa: BLE001  one session's defect must not end the others
            _log.exception("a session was ended")
        finally:
            self._sessions.pop(session.name, None)
            await session.process.end(patience)

    def _unused(self, some: Iterable[AgentSession], seconds: float) -> list[AgentSession]:
        """Return those among some sessions that nobody has used for so long."""
        now = time.monotonic()
        return [one for one in some if one.is_idle and now - one.used_at > seconds]
