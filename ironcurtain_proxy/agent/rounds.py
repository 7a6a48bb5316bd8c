"""Calls that go on between two requests of a client without a handshake.

No request is ever sent to such a client. Where a server or a reviewer asks it something, the call
is parked: its request is answered with `input_required`, with the questions and a sealed state. The
client makes the same request again, with its answers and the state, and the parked call goes on.
A call that waits for a reviewer elsewhere is answered in the same way before the client's own
deadline, without a question.

The call itself runs once, in a task of its own, however often its request is made again. A call
that waits for a reviewer outlives its proxy; see `sealing`.

A client that declares the extension of tasks makes no request again: as soon as its call waits for
a reviewer, it gets a handle, and asks for the state of the call as often as it likes.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from ironcurtain_proxy.agent.replies import LEVELS, fault
from ironcurtain_proxy.agent.requests import INTERNAL_ERROR, EncodedResult
from ironcurtain_proxy.agent.sealing import Sealing, State, digest_of
from ironcurtain_proxy.errors import AgentError
from ironcurtain_proxy.jsonrpc.codec import INVALID_PARAMS, decode, encode
from ironcurtain_proxy.model.operation import Caller
from ironcurtain_proxy.model.values import object_of

if TYPE_CHECKING:
    from ironcurtain_proxy.agent.requests import ServerAnswer
    from ironcurtain_proxy.agent.transport import AgentTransport
    from ironcurtain_proxy.jsonrpc.codec import MessageId
    from ironcurtain_proxy.model.values import Json

_log: Final = logging.getLogger(__name__)

LEG: Final = 40.0
"""Seconds that a request waits for a reviewer before it is answered. Some clients wait for 60."""

MOST_LEGS: Final = 9
"""The most answers that are no result. The clients of the SDKs give up at the tenth."""

_UNCLAIMED: Final = 60.0
"""Seconds in which a client has to come back for a call that waits for a reviewer."""

_MOST: Final = 256
"""The most parked calls."""

_MOST_BYTES: Final = 96 << 20
"""Bytes of what parked calls and their outcomes hold; one alone always fits. The room of a request
is given back with its answer, also where that asks for another request."""

_LONGEST_KEY: Final = 64

_TASK: Final = 3600.0
"""Seconds for which the outcome of a task is kept."""

_POLL: Final = 5000
"""Milliseconds between two looks of a client at its task."""

TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})

_UNKNOWN_TASK: Final = fault(INVALID_PARAMS, "this task is not known")
_HELD: Final = (
    "The call waits for a reviewer, as the policy wants. It goes on by itself; tell the user that "
    "the answer is awaited elsewhere."
)

_LOST: Final = fault(
    INVALID_PARAMS,
    "requestState is not known (any more). The call that it belongs to may have been carried out: "
    "look at what it did before you make the call again.",
)
_OTHER: Final = fault(INVALID_PARAMS, "requestState belongs to another call: state-of-another-call")
_DEFECT: Final = fault(INTERNAL_ERROR, "Internal error")
_FULL: Final = fault(INTERNAL_ERROR, "too many or too large calls are parked")

Work = Callable[[], Awaitable["ServerAnswer"]]


class _Asked:
    """One question, and the client's answer."""

    def __init__(self, method: str, params: "Mapping[str, Json]") -> None:
        self.method = method
        self.params = params
        self.answer: Mapping[str, Json] | None = None
        self.is_answered = anyio.Event()


class _Round:
    """One call, over all its requests."""

    def __init__(
        self, caller: Caller, method: str, request_id: "MessageId", params: "Mapping[str, Json]"
    ) -> None:
        self.caller = caller
        self.newest = caller
        """Who makes the newest request: what that one says holds, and nothing said before."""
        self.request_id = request_id
        """The id of the newest request."""
        self.token = _token(params)
        """The progress token of the newest request."""
        self.method = method
        self.params = params
        self.id = secrets.token_hex(16)
        self.legs = 0
        self.scope = anyio.CancelScope()
        self.questions: dict[str, _Asked] = {}
        self.outcome: ServerAnswer | None = None
        self.is_held = False
        """Whether it waits for a reviewer."""
        self.is_sent = False
        """Whether a server may know of it."""
        self.is_claimed = False
        """Whether a request waits for its end."""
        self.is_task = False
        """Whether its client has a handle of it, and asks by that."""
        self.size = 0
        """Bytes that it holds while no request of it is under way."""
        self.times = [_now(), _now()]
        """When it began, and when its state last changed, in UTC."""
        self._last = 0
        self._news = anyio.Event()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what is asked for. A call that is answered at once needs none."""
        return digest_of(self.method, self.params)

    def ask(self, entry: str, method: str, params: "Mapping[str, Json]") -> tuple[str, _Asked]:
        """Ask under the server's own key, unless it is long or odd, or another question has it."""
        # `__proto__` is no key of an object in JavaScript: the answer would be lost.
        key = "" if entry.startswith("__") else entry
        while not key or key in self.questions or len(key) > _LONGEST_KEY:
            self._last += 1
            key = str(self._last)
        asked = self.questions[key] = _Asked(method, params)
        self.tell()
        return key, asked

    def tell(self) -> None:
        self.times[1] = _now()
        self._news.set()

    async def until_news(self, seconds: float | None) -> None:
        """Wait for an outcome, a question, or another wait, so long at most."""
        self._news = anyio.Event()
        with anyio.move_on_after(seconds):
            await self._news.wait()


class Rounds:
    """The calls of clients without a handshake, and the questions to both kinds of clients."""

    def __init__(self, transport: "AgentTransport", sealing: Sealing) -> None:
        """Begin without calls.

        Args:
            transport: reaches a client that has sent `initialize`.
            sealing: seals states, and keeps calls that are not sent yet.
        """
        self._transport = transport
        self._rounds: dict[str, _Round] = {}
        self._by_number: dict[int, _Round] = {}
        self._sealing = sealing
        self._tasks: TaskGroup | None = None
        self._ends = False

    def run_in(self, tasks: TaskGroup) -> None:
        """Run calls in tasks of this group, whose owner ends them."""
        self._tasks = tasks

    def leave(self) -> None:
        """Leave calls that wait for a reviewer to another proxy: this one ends."""
        self._ends = True

    # --- to the client

    def capabilities_of(self, caller: Caller | None) -> "Mapping[str, Json] | None":
        """Return what a caller can do; `None`: nobody has said so yet, or its call has ended."""
        if caller is None:
            return self._transport.client_capabilities
        one = self._by_number.get(caller.number)
        return None if one is None else one.newest.capabilities

    def every(self) -> "Iterator[Mapping[str, Json]]":
        """Return what each client can do that may be asked now."""
        if self._transport.client_capabilities is not None:
            yield self._transport.client_capabilities
        for one in self._rounds.values():
            yield one.newest.capabilities

    async def request(
        self,
        method: str,
        params: "Mapping[str, Json]",
        seconds: float,
        caller: Caller | None = None,
    ) -> "Mapping[str, Json]":
        """Ask a client; see `AgentTransport.request`.

        Args:
            method: of the question.
            params: of the question.
            seconds: the deadline for the answer.
            caller: whose call the question belongs to.
        """
        if caller is None:
            return await self._transport.request(method, params, seconds)
        one = self._by_number.get(caller.number)
        if one is None or one.legs >= MOST_LEGS:
            raise AgentError("the call has no client any more that could be asked")
        key, asked = one.ask(caller.entry, method, params)
        try:
            with anyio.fail_after(seconds):
                await asked.is_answered.wait()
        finally:
            if one.questions.get(key) is asked:
                del one.questions[key]
        if asked.answer is None:
            raise AgentError("the agent gave no answer")
        return asked.answer

    @contextmanager
    def waiting(self, caller: Caller | None, *, is_sent: bool) -> Iterator[None]:
        """Answer the requests of this call before a client's deadline, meanwhile.

        Args:
            caller: whose call waits.
            is_sent: whether a server may know of the call.
        """
        one = None if caller is None else self._by_number.get(caller.number)
        if one is None:
            yield
            return
        one.is_held, one.is_sent = True, is_sent
        one.tell()
        try:
            yield
        except BaseException:
            if self._ends:
                self._sealing.leave(one.id)
            else:
                with suppress(OSError):
                    self._sealing.spend(one.id)
            raise
        else:
            self._sealing.spend(one.id)
        finally:
            one.is_held, one.is_sent = False, True

    def wanting(self, level: str) -> "list[MessageId]":
        """Return the requests under way that want log messages of this severity."""
        if level not in LEVELS:
            return []
        return [
            one.request_id
            for one in self._rounds.values()
            if one.is_claimed
            and one.newest.log_level
            and LEVELS.index(one.newest.log_level) <= LEVELS.index(level)
        ]

    def progress_of(
        self, caller: Caller, progress: "Mapping[str, Json]"
    ) -> "Mapping[str, Json] | None":
        """Return progress of a call under the token of its newest request; `None`: it has none."""
        one = self._by_number.get(caller.number)
        if one is None or not one.is_claimed or one.token is None:
            return None
        return {**progress, "progressToken": one.token}

    # --- from the client

    async def carry(
        self,
        caller: Caller,
        method: str,
        request_id: "MessageId",
        params: "Mapping[str, Json]",
        work: Work,
    ) -> "ServerAnswer":
        """Carry out a request that may be answered with questions, or go on with its call.

        Args:
            caller: who makes it.
            method: of the request.
            request_id: of the request.
            params: of the request.
            work: carries out the call, if it is a new one.
        """
        state = params.get("requestState")
        if state is None:
            return await self._answer(self._begin(_Round(caller, method, request_id, params), work))
        said = self._sealing.opened(state)
        if said is None:
            return _LOST
        if said.call != digest_of(method, params):
            return _OTHER
        one = self._rounds.get(said.id)
        if one is None:
            return await self._take_up(said, caller, method, request_id, params, work)
        if one.is_claimed:
            return _LOST
        one.newest, one.request_id, one.token = caller, request_id, _token(params)
        _take(one, params.get("inputResponses"))
        return await self._answer(one)

    def _begin(self, one: _Round, work: Work) -> _Round:
        """Begin a call. What runs is bounded by the capacity for requests."""
        self._rounds[one.id] = self._by_number[one.caller.number] = one
        if self._tasks is not None:
            self._tasks.start_soon(self._run, one, work)
        return one

    def _has_room(self, one: _Round, held: object) -> bool:
        """Return whether a call may hold this until its client comes back.

        Outcomes that nobody has fetched make way, the oldest first.
        """
        size = _size_of(held)
        parked = [other for other in self._rounds.values() if not other.is_claimed]
        count, used = len(parked) - (one in parked), sum([other.size for other in parked])
        used -= one.size if one in parked else 0
        for old in parked:
            is_full = count >= _MOST or used + size > _MOST_BYTES
            if is_full and old is not one and old.is_task and old.outcome is not None:
                count, used = count - 1, used - old.size
                self._forget(old)
        one.size = size
        return count < _MOST and (not used or used + size <= _MOST_BYTES)

    async def _take_up(
        self,
        said: State,
        caller: Caller,
        method: str,
        request_id: "MessageId",
        params: "Mapping[str, Json]",
        work: Work,
    ) -> "ServerAnswer":
        """Make a call anew that a proxy which is gone had not sent yet."""
        if not self._sealing.take_up(said.id):
            return _LOST
        one = _Round(caller, method, request_id, params)
        one.legs = said.leg
        return await self._answer(self._begin(one, work))

    async def _run(self, one: _Round, work: Work) -> None:
        try:
            with one.scope:
                one.outcome = await work()
        except Exception:  # noqa: BLE001  one call's defect must not end the others
            _log.exception("a request could not be answered")
            one.outcome = _DEFECT
        one.tell()
        del work  # it holds the arguments, as these do
        one.params = {}
        if not one.is_claimed and one.id in self._rounds:
            self._has_room(one, (one.outcome or {}).get("result"))
            await anyio.sleep(_TASK if one.is_task else _UNCLAIMED)
        if not one.is_claimed:
            self._forget(one)

    async def _answer(self, one: _Round) -> "ServerAnswer":
        one.is_claimed = True
        try:
            ends = anyio.current_time() + LEG
            while one.outcome is None and not one.scope.cancel_called:
                is_last = one.legs >= MOST_LEGS
                left = ends - anyio.current_time()
                is_asked = bool(one.questions) and not is_last
                is_task = one.is_held and one.method == "tools/call" and one.newest.knows_tasks
                if is_asked or is_task or (one.is_held and left <= 0 and not is_last):
                    said = one.newest.capabilities, one.newest.info
                    if not self._has_room(one, [one.params, *said, _asked_of(one)]):
                        one.scope.cancel()
                        self._forget(one)
                        return _FULL
                    if is_asked or not is_task:
                        return self._required(one)
                    one.is_task = True
                    return {"result": {"resultType": "task", **_state_of(one)}}
                await one.until_news(left if one.is_held and not is_last else None)
            self._forget(one)
            return _LOST if one.outcome is None else one.outcome
        except BaseException:
            # The client has withdrawn its request, or gone: nobody would read the outcome.
            one.scope.cancel()
            self._forget(one)
            raise
        finally:
            one.is_claimed = False

    def _required(self, one: _Round) -> "ServerAnswer":
        one.legs += 1
        if one.is_held and not one.is_sent and not one.questions:
            self._sealing.keep(one.id)
        result: dict[str, Json] = {"resultType": "input_required"}
        if one.questions:
            result["inputRequests"] = _asked_of(one)
        elif self._tasks is not None:
            self._tasks.start_soon(self._give_up, one, one.legs)
        state = self._sealing.sealed(State(id=one.id, call=one.digest, leg=one.legs))
        return {"result": {**result, "requestState": state}}

    # --- tasks

    async def look(
        self, method: str, _caller: Caller, _request_id: "MessageId", params: "Mapping[str, Json]"
    ) -> "ServerAnswer":
        """Answer a request about a task: its state, or a note that it was heard."""
        one = self._rounds.get(str(params.get("taskId")))
        if one is None or not one.is_task:
            return _UNKNOWN_TASK
        if method == "tasks/update":
            _take(one, params.get("inputResponses"))
        elif method == "tasks/cancel" and one.outcome is None:
            one.scope.cancel()
            one.tell()
        return {"result": {} if method != "tasks/get" else _detailed(one)}

    async def _give_up(self, one: _Round, legs: int) -> None:
        """End a call whose client does not come back for it."""
        await anyio.sleep(_UNCLAIMED)
        if one.legs == legs and not one.is_claimed:
            one.scope.cancel()
            self._forget(one)

    def _forget(self, one: _Round) -> None:
        self._rounds.pop(one.id, None)
        self._by_number.pop(one.caller.number, None)


def _take(one: _Round, responses: "Json") -> None:
    """Give the client's answers to those who asked; what nobody asked is dropped."""
    for key, answer in (responses if isinstance(responses, dict) else {}).items():
        asked = one.questions.pop(key, None)
        if asked is not None:
            asked.answer = answer if isinstance(answer, dict) else None
            asked.is_answered.set()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")  # noqa: TID251  shown, not compared


def _state_of(one: _Round) -> "dict[str, Json]":
    status = "working"
    if one.outcome is not None:
        status = "failed" if "error" in one.outcome else "completed"
    elif one.scope.cancel_called:
        status = "cancelled"
    elif one.questions:
        status = "input_required"
    return {
        "taskId": one.id,
        "status": status,
        "createdAt": one.times[0],
        "lastUpdatedAt": one.times[1],
        "ttlMs": int(_TASK * 1000),
        "pollIntervalMs": _POLL,
        **({"statusMessage": _HELD} if one.is_held and status == "working" else {}),
    }


def _detailed(one: _Round) -> "dict[str, Json]":
    """Return the state of a task, with its outcome or its questions."""
    found = _state_of(one)
    if found["status"] == "input_required":
        return {**found, "inputRequests": _asked_of(one)}
    for key, value in (one.outcome or {}).items():
        told = decode(value.text) if isinstance(value, EncodedResult) else value
        found[key] = dict(told) if isinstance(told, Mapping) else {}
    return found


def _asked_of(one: _Round) -> "dict[str, Json]":
    return {
        key: {"method": asked.method, "params": dict(asked.params)}
        for key, asked in one.questions.items()
    }


def _size_of(held: object) -> int:
    """Return how many bytes something is as JSON; what cannot be written counts as the most."""
    try:
        return len(held.text if isinstance(held, EncodedResult) else encode({"": held}))
    except (ValueError, RecursionError):
        return _MOST_BYTES


def _token(params: "Mapping[str, Json]") -> "Json":
    return object_of(params.get("_meta")).get("progressToken")
