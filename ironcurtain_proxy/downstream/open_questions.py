"""Open requests of a server, its listeners, and the bytes of its answers.

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
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from msgspec import Struct, field

from ironcurtain_proxy.downstream.eras import ROOTS
from ironcurtain_proxy.downstream.session_log import NotificationLimits
from ironcurtain_proxy.jsonrpc.codec import MessageId
from ironcurtain_proxy.model.operation import Caller
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json

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
        self._under_way: list[Caller | None] = []
        self._open: dict[anyio.CancelScope, MessageId | None] = {}
        """The server's own number of each open question."""
        self._withdrawn: set[anyio.CancelScope] = set()
        self._group: TaskGroup | None = None

    def answer_in(self, group: TaskGroup) -> None:
        """Answer questions in tasks of this group."""
        self._group = group

    @property
    def is_idle(self) -> bool:
        """Whether no operation of the agent is under way."""
        return not self._under_way

    def begin(self, caller: Caller | None) -> None:
        """Note that an operation of the agent begins."""
        self._under_way.append(caller)

    def end(self, caller: Caller | None) -> None:
        """Note that an operation of the agent has ended."""
        self._under_way.remove(caller)
        if not self._under_way:
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
                    answer = await ask(method, params, tuple(self._under_way))
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
        if size <= SMALL:
            return True
        used = self._on_its_way + self.unread()
        return not used or used + size <= self.limit

    async def wait(self, size: int) -> None:
        """Wait until a message of this size fits."""
        while not self.fits(size):  # noqa: ASYNC110  nobody tells, see above
            await anyio.sleep(_LOOK_AGAIN)

    def note(self, answer: ToolResult, size: int) -> ToolResult:
        """Count an answer until it is released."""
        if size > SMALL:
            self._on_its_way += size
            self.on_large()
            weakref.finalize(answer, self._forget, size).atexit = False
        return answer

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
