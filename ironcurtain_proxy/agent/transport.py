"""The connection to the agent: its messages, and ours.

The only method known here is the cancellation of our own requests.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Struct, field

from ironcurtain_proxy.agent.requests import (
    INTERNAL_ERROR,
    EncodedResult,
    ErrorReply,
    GivenAnswer,
    Message,
    RefusedQuestionError,
    read,
)
from ironcurtain_proxy.errors import AgentError
from ironcurtain_proxy.jsonrpc.codec import MessageId, encode, escaped, written_id
from ironcurtain_proxy.jsonrpc.pipes import LineReader
from ironcurtain_proxy.jsonrpc.sending import Answers, LineWriter
from ironcurtain_proxy.model.values import Json

if TYPE_CHECKING:
    from ironcurtain_proxy.agent.requests import Requests, ServerAnswer

_OUR_IDS: Final = "ironcurtain-proxy/"
"""The prefix of the ids of the proxy's own requests. An answer with another id is ignored."""

_MAX_DIGITS: Final = 18

_GONE: Final = "the agent has gone"

DRAIN_SECONDS: Final = 15.0
"""Seconds to wait for requests in progress after the agent has closed its end."""

_LARGEST_AT_ONCE: Final = 64 * 1024


class AgentTransport(Struct, eq=False):
    """One connection to an agent."""

    lines: LineReader
    """The agent's lines."""
    out: LineWriter
    """The lines for the agent."""
    drain_seconds: float = DRAIN_SECONDS
    """The wait for requests in progress after the agent has closed its end."""
    client_capabilities: Mapping[str, Json] | None = None
    """The capabilities of the client's first `initialize`, or None if there was none yet."""
    _answers: Answers[Mapping[str, "Json"]] = field(default_factory=Answers)
    _is_gone: bool = False

    # --- from the agent

    async def receive(self) -> Message | ErrorReply | None:
        """Return the next request or notification, or None if the agent has closed its end.

        A line that is neither is returned as the error that its sender gets.
        """
        while (line := await self.lines.receive()) is not None:
            found = read(line)
            if not isinstance(found, GivenAnswer):
                return found
            self._take_answer(found.message)
        self._end()
        return None

    def offer_to(self, taker: Callable[[Message], bool]) -> None:
        """Offer short messages to a function as they arrive, if no message waits before them.

        A message that the function refuses is the next one that `receive` gives.
        """

        def offer(line: bytes) -> bool:
            if len(line) > _LARGEST_AT_ONCE:
                return False
            found = read(line)
            return isinstance(found, Message) and taker(found)

        self.lines.offer_to(offer)

    # --- to the agent

    async def notify(self, method: str, params: "Mapping[str, Json] | None") -> None:
        """Send a notification, raw. Nothing happens if the agent has gone."""
        message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self.send(message)

    def post(self, message: Mapping[str, object]) -> None:
        """Send one message without a wait. Nothing happens if the agent has gone."""
        with suppress(BrokenPipeError):
            self.out.write(_encoded(message))

    def answer(self, request_id: MessageId, answer: "ServerAnswer") -> None:
        """Send the answer to a request without a wait. Nothing happens if the agent has gone."""
        result = answer.get("result")
        if not isinstance(result, EncodedResult):
            self.post({"jsonrpc": "2.0", "id": request_id, **answer})
            return
        text = result.text if result.text.isascii() else escaped(result.text)
        head = b"".join((b'{"jsonrpc":"2.0","id":', written_id(request_id), b',"result":'))
        try:
            if len(text) < _LARGEST_AT_ONCE:
                self.out.write(b"".join((head, text, b"}\n")))
            else:
                # Not copied into the message.
                self.out.write_parts(head, text, b"}\n")
        except BrokenPipeError:
            return

    async def send(self, message: Mapping[str, object]) -> None:
        """Send one message, and wait while the agent reads too slowly."""
        with suppress(BrokenPipeError):
            await self.out.send(_encoded(message))

    async def until_read(self) -> None:
        """Wait while the agent reads too slowly."""
        with suppress(BrokenPipeError):
            await self.out.until_uncongested()

    async def request(
        self, method: str, params: "Mapping[str, Json]", seconds: float
    ) -> "Mapping[str, Json]":
        """Send the agent's client a request, and a cancellation if the wait ends early.

        Returns:
            The raw `result`.

        Raises:
            AgentError: it answered with an error or an invalid answer, or has gone.
            TimeoutError: it did not answer within `seconds`.
        """
        if self._is_gone:
            raise AgentError(_GONE)
        number, answer = self._answers.expect(seconds)
        request_id = f"{_OUR_IDS}{number}"
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        try:
            self.out.write(encode(message))
        except (BrokenPipeError, ValueError):
            self._answers.forget(number)
            raise AgentError("the agent could not be asked") from None
        try:
            return await answer
        except TimeoutError:
            self._cancel(request_id, "the deadline has passed")
            raise
        except anyio.get_cancelled_exc_class():
            self._answers.forget(number)
            self._cancel(request_id, "the question was withdrawn")
            raise

    def _take_answer(self, message: "Mapping[str, Json]") -> None:
        """Give an answer to the task that waits for it; without such a task it is dropped."""
        request_id = message.get("id")
        if not isinstance(request_id, str) or not request_id.startswith(_OUR_IDS):
            return
        digits = request_id[len(_OUR_IDS) :]
        if not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
            return
        result, error = message.get("result"), message.get("error")
        if isinstance(result, dict) and error is None:
            self._answers.resolve(int(digits), result)
        else:
            self._answers.fail(int(digits), RefusedQuestionError(error))

    def _cancel(self, request_id: str, reason: str) -> None:
        params = {"requestId": request_id, "reason": reason}
        self.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    # --- the end

    async def drain(self, requests: "Requests") -> None:
        """Answer the remaining requests in bounded time, once the agent sends no more.

        A client that no longer reads either has gone, and the wait ends.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_gone, tasks.cancel_scope)
            with anyio.move_on_after(self.drain_seconds):
                await requests.until_idle()
                await self.out.flush()
                tasks.cancel_scope.cancel()
            await requests.give_up()
            tasks.cancel_scope.cancel()

    async def close(self) -> None:
        """Stop reading, and flush what was sent as far as the agent reads."""
        self._end()
        self.lines.close()
        with anyio.move_on_after(1, shield=True):
            await self.out.drain_and_close()
        self.out.abort()

    def _end(self) -> None:
        self._is_gone = True
        self._answers.fail_all(AgentError(_GONE))

    async def _until_gone(self, scope: anyio.CancelScope) -> None:
        await self.out.until_closed()
        scope.cancel()


def _encoded(message: Mapping[str, object]) -> bytes:
    """Return one line; an error instead if the message cannot be written.

    A server's answer can be readable and yet nested too deep to be written again: only its own call
    may fail.
    """
    try:
        return encode(message)
    except ValueError:
        error = {"code": INTERNAL_ERROR, "message": "the answer cannot be written as JSON"}
        return encode({"jsonrpc": "2.0", "id": message.get("id"), "error": error})
