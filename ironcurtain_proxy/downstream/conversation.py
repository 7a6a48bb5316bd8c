"""JSON-RPC with one server: requests with ids and deadlines, answers, and when it stands still.

Knows no method but those that must not be withdrawn. Every message of a server is untrusted.
Results and errors are handed back as they came.

From the answer of a contained call on, which may have left processes behind, the sandbox stands
still whenever nothing is under way: `sandbox.standstill`. Each message to the server lets it go on
first. After an answer it is stopped again, at once where somebody waits for that, and a moment
after a message that has no answer.

    require() ── nothing under way ──▶ stands ── a message is sent ──▶ goes on
                                          ▲                                │
                                          └── a moment after the last answer, or the last message

A person's approval of a call lifts it (`release`), until the next contained call.

A server asks by elicitation or sampling, or by a method that is not served. A question belongs to
the server's operations in progress. A question without an operation is refused, and questions that
are open when the last operation ends are withdrawn. A server may withdraw its own question, too.

Large answers have a capacity in bytes, over all servers, on their way to the agent. The size of one
answer is limited elsewhere; this limits the sum: no server is read further while the agent has not
read the answers sent before. Small answers are never delayed.
"""

import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import thread_time
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio
from anyio import CapacityLimiter
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync
from msgspec import Struct, field

from ironcurtain_proxy.downstream.eras import ROOTS
from ironcurtain_proxy.downstream.notifications import UnusableMessages
from ironcurtain_proxy.downstream.session_log import Allowance, NotificationLimits
from ironcurtain_proxy.errors import (
    CallLostError,
    CallTimedOutError,
    DownstreamError,
    ServerUnavailableError,
    UnansweredError,
)
from ironcurtain_proxy.jsonrpc.codec import (
    LONG_TEXT,
    Malformed,
    MessageId,
    answer_id,
    decode,
    decode_repaired,
    encode,
    encode_result,
    encode_value,
    message_id,
    odd_number,
    recover_id,
)
from ironcurtain_proxy.jsonrpc.pipes import LineSink, LineSource, Lost, Oversize, StreamEnded
from ironcurtain_proxy.jsonrpc.sending import LONG_RESULT, Answers, GuessedDigest, guess_digest
from ironcurtain_proxy.model.operation import Caller
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, object_of

if TYPE_CHECKING:
    from ironcurtain_proxy.sandbox.standstill import Standstill

# --- what a server asks, and the bytes of answers

_log: Final = logging.getLogger(__name__)

QuestionHandler: TypeAlias = Callable[
    [str, Mapping[str, Json], Sequence[Caller | None]], Awaitable[Mapping[str, object]]
]
"""Decides on a question, sends it, and gives the `result` or `error` for the server. The last
argument is the callers of the operations in progress, one of which the question belongs to, the
newest last."""

Replier: TypeAlias = Callable[[Mapping[str, object]], None]

_MOST: Final = 4
"""The most open questions of a server."""
_REFUSED: Final = -32600
_BUSY: Final = {"error": {"code": _REFUSED, "message": "too many questions are open"}}
NOT_OFFERED: Final[Mapping[str, object]] = {
    "error": {"code": -32601, "message": "Method not found"}
}
_DEFECT: Final = {"error": {"code": -32603, "message": "Internal error"}}


class OpenServerQuestions:
    """The questions of one connection."""

    def __init__(self, ask: QuestionHandler | None) -> None:
        self._ask = ask
        self.under_way: list[Caller | None] = []
        """The callers of the agent's operations in progress; each is added by who begins it."""
        self._open: dict[anyio.CancelScope, MessageId | None] = {}
        """The server's own number of each open question."""
        self._withdrawn: set[anyio.CancelScope] = set()
        self._group: TaskGroup | None = None

    def answer_in(self, group: TaskGroup) -> None:
        """Answer questions in tasks of this group."""
        self._group = group

    def end(self, caller: Caller | None) -> None:
        """Note that an operation of the agent has ended."""
        self.under_way.remove(caller)
        if not self.under_way:
            for scope in self._open:
                scope.cancel()

    def withdraw(self, number: MessageId | None) -> None:
        """End a question that its server has given up: nobody waits for the answer."""
        for scope, asked in self._open.items():
            if number is not None and asked == number:
                self._withdrawn.add(scope)
                scope.cancel()

    def take(
        self,
        method: str,
        params: Mapping[str, Json],
        reply: Replier,
        number: MessageId | None = None,
    ) -> bool:
        """Answer a question in a task; returns at once. False: it is refused, for its number."""
        if self._ask is None or self._group is None:
            reply(NOT_OFFERED)
        elif len(self._open) >= _MOST:
            reply(_BUSY)
            return False
        else:
            scope = anyio.CancelScope()
            self._open[scope] = number
            self._group.start_soon(partial(self._answer, self._ask, scope, method, params, reply))
        return True

    async def _answer(
        self,
        ask: QuestionHandler,
        scope: anyio.CancelScope,
        method: str,
        params: Mapping[str, Json],
        reply: Replier,
    ) -> None:
        try:
            with scope:
                try:
                    answer = await ask(method, params, tuple(self.under_way))
                except Exception:  # noqa: BLE001  one question must not end the server
                    _log.exception("a question of a server could not be handled")
                    answer = _DEFECT
                reply(answer)
            if scope.cancelled_caught and scope not in self._withdrawn:
                reply({"error": {"code": _REFUSED, "message": "the call it belonged to has ended"}})
        finally:
            self._open.pop(scope, None)
            self._withdrawn.discard(scope)


# --- answer capacity


SMALL: Final = 64 * 1024
"""Bytes of a message that counts as small."""

_SUM: Final = 96 << 20
_LOOK_AGAIN: Final = 0.01
"""Seconds between two looks: no event reports bytes that leave a pipe."""


class AnswerCapacity:
    """Bytes of large answers that are in memory."""

    def __init__(self) -> None:
        """Begin empty."""
        self.limit = _SUM
        self.unread: Callable[[], int] = lambda: 0
        """Gives the bytes that the agent has not read yet."""
        self.on_large: Callable[[], None] = lambda: None
        """Called for each large answer."""
        self._on_its_way = 0

    def fits(self, size: int) -> bool:
        """Return whether a message of this size fits now. One message alone always fits."""
        return size <= SMALL or not (used := self.used()) or used + size <= self.limit

    def used(self) -> int:
        """Return the bytes of large answers, and of what the agent has not read yet."""
        return self._on_its_way + self.unread()

    async def wait(self, size: int) -> None:
        """Wait until a message of this size fits."""
        while not self.fits(size):  # noqa: ASYNC110  nobody tells, see above
            await anyio.sleep(_LOOK_AGAIN)

    def note(self, answer: ToolResult, size: int) -> None:
        """Count a large answer until it is released."""
        self._on_its_way += size
        self.on_large()
        weakref.finalize(answer, self._forget, size).atexit = False

    def _forget(self, size: int) -> None:
        self._on_its_way -= size


# --- listeners


PASSED_ON: Final = frozenset(
    {
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/prompts/list_changed",
        "notifications/elicitation/complete",
    }
)
"""Notifications that are passed on, besides tools, progress and log messages."""


async def _not_passed_on(_method: str, _params: Mapping[str, Json]) -> None:
    return


async def _roots_only(_caller: Caller | None) -> Mapping[str, Json]:
    return ROOTS


class Listeners(Struct, frozen=True):
    """The listeners of a server's notifications and requests."""

    tools_changed: Callable[[], None]
    logged: Callable[[Mapping[str, Json]], Awaitable[None]]
    """Is handed the raw `params` of `notifications/message`."""
    roots: Callable[[], Sequence[Mapping[str, Json]]]
    """Gives the `roots` to answer `roots/list` with."""
    noticed: Callable[[str, Mapping[str, Json]], Awaitable[None]] = _not_passed_on
    """Is handed the method and the raw `params` of the notifications in `PASSED_ON`."""
    missed: Callable[[], Awaitable[None]] = checkpoint
    """Called when news may have been missed, because nobody has listened for a while."""
    asked: QuestionHandler | None = None
    """Decides on the server's own questions and answers them, or None if all are refused."""
    capabilities: Callable[[Caller | None], Awaitable[Mapping[str, Json]]] = _roots_only
    """Gives the client capabilities for the server, of the client of one request."""
    hidden: Callable[[str], None] = lambda _: None
    """Called for each hidden tool, at every listing."""
    capacity: AnswerCapacity = field(default_factory=AnswerCapacity)
    """The capacity that large answers of all servers share."""
    notices: NotificationLimits = field(default_factory=NotificationLimits)
    """The limit on notifications; answers always pass."""


# --- the conversation

# --- standing


_MOMENT: Final = 0.1
"""Seconds in which a server deals with a message that has no answer, such as a cancellation."""


class Standing:
    """The standstill of one process of a server, beside its conversation."""

    def __init__(self, still: "Standstill | None") -> None:
        """Begin with a server that runs, or None if its processes are never stopped."""
        self._still = still
        self.is_required = False
        """Whether the server stands still when nothing is under way."""
        self._under_way = 0
        self._noticed = 0.0
        """The loop's time of the last message without an answer."""
        self._moved = anyio.Event()
        self._limiter = CapacityLimiter(1)

    def let_go_on(self) -> None:
        """Let the server go on, before something is sent to it."""
        if self._still is not None and self.is_required:
            self._still.go_on()
            self._moved.set()

    def note_notice(self) -> None:
        """Give the server a moment for what was sent and has no answer."""
        if self.is_required:
            self._noticed = anyio.current_time()

    def __enter__(self) -> None:
        """Begin something that the server has to run for."""
        self._under_way += 1

    def __exit__(self, *_: object) -> None:
        """End what was begun."""
        self._under_way -= 1
        if self.is_required:
            self._moved.set()

    async def require(self) -> None:
        """Stop the server now if nothing is under way, and from now on whenever nothing is."""
        if self._still is not None:
            self.is_required = True
            await self._stop()

    def release(self) -> None:
        """Let the server run between calls, until `require`."""
        self.let_go_on()
        self.is_required = False

    async def run(self) -> None:
        """Stop the server again after each message, until cancelled."""
        while self._still is not None:
            await self._moved.wait()
            self._moved = anyio.Event()
            await anyio.sleep(_MOMENT)
            await self._stop()

    async def _stop(self) -> None:
        if (left := self._noticed + _MOMENT - anyio.current_time()) > 0:
            await anyio.sleep(left)
        if self._still is None or not self.is_required or self._under_way:
            return
        # Before the thread begins: a message that is sent meanwhile takes it back.
        self._still.want()
        await run_sync(self._still.stop, limiter=self._limiter)


# --- conversation


TURN, PAUSE = 0.002, 0.02
"""Seconds of work on lines after which other tasks run, and of the longest pause for them."""

_UNSENT_REPLIES: Final = 1 << 20
"""The most bytes of unread answers to the server's own requests."""

_Message: TypeAlias = Mapping[str, Json]
_Guess: TypeAlias = GuessedDigest | None

_HEAD: Final = 128
"""Bytes of a line in which a method is usually named."""


class Peer(Protocol):
    """Knows what the server's own messages mean."""

    def take_request(
        self, request_id: MessageId | None, method: Json, params: Mapping[str, Json]
    ) -> None:
        """Answer a request of the server, now or later."""

    async def take_notice(self, method: Json, params: Mapping[str, Json], size: int) -> None:
        """Act on a notification of so many bytes."""

    async def note_stream_ended(self, *, of_call: bool) -> None:
        """Note that the stream of a call has ended before its answer, or that of no request."""


Pace: Final = partial(Allowance, 0.05, 0.1)
"""Seconds of work on what nobody waits for, each second and in a burst, as an honest server's."""


async def rest(pace: Allowance, spent: float) -> None:
    """Let others run after so many seconds of work; longer for lines without end (an attack)."""
    await anyio.sleep(0 if pace.take(spent) else min(4 * spent, PAUSE))


class Conversation:
    """Messages over a wire. `run` must be running for anything to be answered."""

    def __init__(
        self,
        wire: tuple[LineSource, LineSink],
        peer: Peer,
        capacity: AnswerCapacity,
        dropped: UnusableMessages,
        max_message: int,
        standing: Standing,
    ) -> None:
        self._server = dropped.server
        self._reader, self._writer = wire
        self._reader.offer_to(self._settle_at_once)
        self._peer = peer
        self._capacity = capacity
        self._dropped, self._standing = dropped, standing
        self._max_message = max_message
        self._answers = Answers[ToolResult]()
        self._unsent_replies, self._pace = 0, Pace()
        self.over_http = self._is_awaited = False

    async def run(self) -> None:
        """Receive until the server closes its output."""
        spent = 0.0
        while (line := await self._reader.receive()) is not None:
            began, self._is_awaited = thread_time(), False
            await self._take(line)
            spent += thread_time() - began
            if spent > TURN:
                await rest(self._pace, 0 if self._is_awaited else spent)
                spent = 0.0

    def close(self) -> None:
        """End all waits, and send and receive no more."""
        self._answers.fail_all(CallLostError(f'server "{self._server}" ended before it answered'))
        self._writer.abort()
        self._reader.close()

    async def exchange(
        self,
        method: str,
        params: Mapping[str, Json],
        seconds: float,
        note_id: Callable[[int], None] | None = None,
    ) -> ToolResult:
        """Send a request and wait for its answer. If the wait ends early, the server is told.

        Raises:
            DownstreamError: no answer, none within `seconds`, or none that can be read.
        """
        request_id, answer = self._answers.expect(seconds)
        if note_id is not None:
            note_id(request_id)
        printed = self._dropped.lines_printed
        try:
            self._write({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
            return await answer
        except DownstreamError:
            self._answers.forget(request_id)
            raise
        except TimeoutError:
            self._cancel(request_id, method, "the deadline has passed")
            said = self._dropped.printed if self._dropped.lines_printed > printed else ""
            raise CallTimedOutError(
                f'server "{self._server}" did not answer within {round(seconds, 1):g} s{said}'
            ) from None
        except anyio.get_cancelled_exc_class():
            self._answers.forget(request_id)
            self._cancel(request_id, method, "the caller has cancelled")
            raise

    def notify(self, method: str, params: Mapping[str, Json] | None = None) -> None:
        """Send a notification, unless the server has gone or does not read."""
        message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self._standing.note_notice()
        try:
            self._write(message)
        except DownstreamError:
            self._dropped.note(f"{method} could not be sent")

    def reply(self, request_id: MessageId | None, answer: Mapping[str, object]) -> None:
        """Answer a request of the server, unless it does not read its answers."""
        # We never wait for a server to read answers: meanwhile we would not read its messages,
        # and it may be waiting for that.
        try:
            line = encode({"jsonrpc": "2.0", "id": request_id, **answer})
        except ValueError:
            self._dropped.note("an answer to a request cannot be written as JSON")
            return
        self._unsent_replies = len(line) + (self._unsent_replies if self._writer.backlog else 0)
        if self._unsent_replies > _UNSENT_REPLIES or self._writer.is_closed:
            self._dropped.note("a request was not answered: the server does not read")
        elif request_id is not None:
            self._standing.note_notice()
            self._standing.let_go_on()
            self._writer.write(line)

    def _cancel(self, request_id: int, method: str, reason: str) -> None:
        # MCP forbids to cancel either; over HTTP this closes the stream of the second.
        if method != "initialize" and (method != "server/discover" or self.over_http):
            self.notify("notifications/cancelled", {"requestId": request_id, "reason": reason})

    def _write(self, message: Mapping[str, object]) -> None:
        # Not `send`: a server that does not read must not delay its caller past the deadline.
        if self._writer.backlog > self._max_message:
            raise ServerUnavailableError(f'server "{self._server}" does not read its input')
        try:
            line = encode(message)
        except ValueError:
            raise DownstreamError("the message cannot be written as JSON") from None
        if len(line) > self._max_message:
            raise DownstreamError(f"the message is larger than {self._max_message} bytes")
        if self._standing.is_required:
            self._standing.let_go_on()
        try:
            self._writer.write(line)
        except BrokenPipeError:
            if message.get("id", 0) == self._answers.only:
                self._reader.close()  # it may live, and hear nothing: it is to be started again
            raise ServerUnavailableError(f'server "{self._server}" is not running') from None

    def _settle_at_once(self, line: bytes) -> bool:
        """Handle a line if it answers a request that waits; `run` handles all others."""
        size = len(line)
        if line.find(b'"method"', 0, _HEAD) >= 0 or not self._capacity.fits(size):
            return False
        guess = guess_digest(line) if size >= LONG_RESULT else None
        message = decode(line)
        if not isinstance(message, dict) or "method" in message:
            return False
        if type(said := message.get("id")) is not int or said not in self._answers:
            return False
        self._settle(said, message, size, guess)
        return True

    async def _take(self, line: bytes | Oversize | Lost | StreamEnded) -> None:
        if isinstance(line, Oversize):
            self._take_oversize(line)
            return
        if isinstance(line, Lost):
            self._answers.fail(line.id, line.error)
            return
        if isinstance(line, StreamEnded):
            await self._peer.note_stream_ended(of_call=line.of_call)
            return
        await self._capacity.wait(len(line))
        guess = guess_digest(line)
        message = decode(line)
        if isinstance(message, Malformed) and (repaired := decode_repaired(line)) is not None:
            message, done = repaired
            self._dropped.note(f"a line {done}")
        if isinstance(message, Malformed):
            self._take_malformed(message, line)
        elif "method" in message:
            known: Mapping[str, Json] = object_of(message.get("params"))
            if "id" in message:
                self._peer.take_request(message_id(message["id"]), message["method"], known)
            else:
                await self._peer.take_notice(message["method"], known, len(line))
        else:
            self._deliver(message, len(line), guess)

    def _take_malformed(self, message: Malformed, line: bytes) -> None:
        reason = (not message.is_json and odd_number(line)) or message.reason
        self._dropped.note(f"dropped a line that is {reason}", line)
        if message.id is None and not message.answered:
            self._dropped.note_printed(line)
        self._fail(answer_id(message.id), f"sent an answer that cannot be read: {reason}")
        for request_id in message.answered:
            self._fail(request_id, "sent its answer in a batch, which is not supported")

    def _take_oversize(self, line: Oversize) -> None:
        self._dropped.note(f"dropped a line of {line.size} bytes", line.head)
        found = recover_id(line.head, line.tail)
        if found is None and b'"method"' not in line.head:
            # With one call under way it is most likely the answer to that.
            found = self._answers.only
        self._fail(answer_id(found), f"sent an answer larger than {self._max_message} bytes")

    def _fail(self, request_id: MessageId | None, how: str) -> None:
        self._answers.fail(request_id, UnansweredError(f'server "{self._server}" {how}'))

    def _deliver(self, message: _Message, size: int, guess: _Guess) -> None:
        number = answer_id(message.get("id"))
        if not isinstance(number, int):
            self._dropped.note("dropped an answer whose id is not a whole number")
        elif number not in self._answers:
            self._dropped.note("dropped an answer that nobody waits for")
        else:
            self._settle(number, message, size, guess)

    def _settle(self, number: int, message: _Message, size: int, guess: _Guess) -> None:
        """Give a request that waits its answer."""
        self._is_awaited = True
        result, error = message.get("result"), message.get("error")
        if isinstance(result, dict) and error is None:
            written = encode_result(result) if size >= LONG_TEXT else encode_value(result)
            digest = None if guess is None or written is None else guess.of(written)
            answer = ToolResult(result=result, written=written, digest=digest)
        elif error is not None and result is None:
            answer = ToolResult(error=error if isinstance(error, dict) else {"message": error})
        else:
            self._dropped.note("an answer has neither a result nor an error")
            wrong = "its result is no object" if error is None else "it has a result and an error"
            self._fail(number, f"sent an answer that cannot be read: {wrong}")
            return
        if size > SMALL:
            self._capacity.note(answer, size)
        self._answers.resolve(number, answer)
