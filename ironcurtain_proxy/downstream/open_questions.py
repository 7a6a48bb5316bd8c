"""The open requests of one server: elicitation, sampling, and methods that are not served.

A question belongs to the server's operations in progress. A question without an operation is
refused, and questions that are open when the last operation ends are withdrawn. A server may
withdraw its own question, too.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from ironcurtain_proxy.jsonrpc.codec import MessageId
from ironcurtain_proxy.model.caller import Caller
from ironcurtain_proxy.model.json import Json

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
