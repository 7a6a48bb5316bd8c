"""One session of an agent: its proxy, and the stream of each message.

Knows JSON-RPC, and of methods only what says where a message goes; the proxy behind it decides.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import MsgspecError, Raw, Struct, field
from msgspec.json import Decoder

from ironcurtain_proxy.agent.era import SUBSCRIPTION_KEY
from ironcurtain_proxy.agent.messages import INTERNAL_ERROR, Message
from ironcurtain_proxy.front.process import ProxyProcess
from ironcurtain_proxy.front.stream import Stream
from ironcurtain_proxy.jsonrpc.codec import MessageId, encode, message_id, recover_id
from ironcurtain_proxy.jsonrpc.pipes import Oversize
from ironcurtain_proxy.jsonrpc.wire import OF_REQUEST, STREAM_ENDED

if TYPE_CHECKING:
    from ironcurtain_proxy.model.json import Json

OWN: Final = "0"
"""The name of the stream for messages that belong to no request."""

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
        """The agreed version of the protocol; empty: none yet."""
        self.used_at = time.monotonic()
        """The last request or answer, by the monotonic clock."""
        self.reading_large = anyio.Lock()
        """The lock of the one request whose large body is being read."""
        self._max_waiting = max_waiting
        self._own = Stream(OWN, self._note_taken)
        self._requests: dict[MessageId, Stream] = {}
        self._tokens: dict[MessageId, MessageId] = {}
        """The ids of requests with progress, by their progress tokens."""
        self._finished: dict[str, Stream] = {}
        self._last = 0
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
        """Whether a request with this id is open."""
        return request_id in self._requests

    def begin(self, message: Message) -> Stream:
        """The stream of a request. The caller sends the request afterwards.

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
        """A stream by its name; None: it is unknown or forgotten."""
        if name == OWN:
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
        stream = self._target(found.params) if self.is_shared else None
        if stream is None and self.is_shared:
            return  # its request has ended
        stream = stream or self._stream_of(found.method, found.params)
        if stream is self._own and not stream.is_followed and stream.unsent > _UNHEARD:
            self._own = stream = Stream(OWN, self._note_taken)
        stream.put(line)

    def _end_early(self) -> None:
        """End the stream of the one open request, as its server did: an answer is not near.

        With several open requests nothing says whose it was, and no stream needs to end.
        """
        if len(self._requests) == 1:
            next(iter(self._requests.values())).end_early()

    def _stream_of(self, method: str, params: Raw) -> Stream:
        """The stream of a message that no request of the agent asked for.

        A message that belongs to a call goes to the stream of the call's answer. Progress names its
        call. Any other message is taken for one of the newest open call; without an open call, it
        goes to the session's own stream.
        """
        if method == "notifications/progress":
            token = _progress(params).progressToken
            request_id = None if token is None else self._tokens.get(token)
            if request_id is not None:
                return self._requests[request_id]
        if not self._requests or (method in _ASIDE and self._own.is_followed):
            return self._own
        return next(reversed(self._requests.values()))

    def _target(self, params: Raw) -> Stream | None:
        """The stream of the request that a notification names; None: it names none under way."""
        try:
            named = _progress(params)
        except (MsgspecError, ValueError):
            return None
        subscription = None if named.meta is None else named.meta.subscription
        for request_id in (named.request, subscription, named.progressToken):
            if request_id is not None:
                return self._requests.get(request_id)
        return None

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
