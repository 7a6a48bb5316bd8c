"""Calls that go on between two requests of a client without a handshake.

No request is ever sent to such a client. Where a server or a reviewer asks it something, the call
is parked: its request is answered with `input_required`, with the questions and a sealed state. The
client makes the same request again, with its answers and the state, and the parked call goes on.
A call that waits for a reviewer elsewhere is answered in the same way before the client's own
deadline, without a question.

The call itself runs once, in a task of its own, however often its request is made again. The state
holds an id and digests, and nothing of the call: the agent could read it.
"""

import base64
import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from ironcurtain_proxy.agent.era import LEVELS
from ironcurtain_proxy.agent.messages import INTERNAL_ERROR, INVALID_PARAMS
from ironcurtain_proxy.errors import AgentError
from ironcurtain_proxy.jsonrpc.codec import Malformed, decode, encode
from ironcurtain_proxy.model.caller import Caller

if TYPE_CHECKING:
    from ironcurtain_proxy.agent.requests import ServerAnswer
    from ironcurtain_proxy.agent.transport import AgentTransport
    from ironcurtain_proxy.jsonrpc.codec import MessageId
    from ironcurtain_proxy.model.json import Json

_log: Final = logging.getLogger(__name__)

LEG: Final = 40.0
"""Seconds that a request waits for a reviewer before it is answered. Some clients wait for 60."""

MOST_LEGS: Final = 9
"""The most answers that are no result. The clients of the SDKs give up at the tenth."""

_UNCLAIMED: Final = 60.0
"""Seconds in which a client has to come back for a call that waits for a reviewer."""

_MOST: Final = 256
"""The most parked calls."""

_PREFIX: Final = "v1."
_STATE_LENGTH: Final = 1024

_LOST: Final = {
    "error": {
        "code": INVALID_PARAMS,
        "message": "requestState is not known (any more). The call that it belongs to may have "
        "been carried out: look at what it did before you make the call again.",
    }
}
_OTHER: Final = {
    "error": {
        "code": INVALID_PARAMS,
        "message": "requestState belongs to another call: state-of-another-call",
    }
}
_DEFECT: Final = {"error": {"code": INTERNAL_ERROR, "message": "Internal error"}}
_FULL: Final = {"error": {"code": INTERNAL_ERROR, "message": "too many calls are parked"}}

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
        self,
        caller: Caller,
        method: str,
        request_id: "MessageId",
        params: "Mapping[str, Json]",
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
        self.is_claimed = False
        """Whether a request waits for its end."""
        self._last = 0
        self._news = anyio.Event()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what is asked for. A call that is answered at once needs none."""
        return _digest(self.method, self.params)

    def ask(self, method: str, params: "Mapping[str, Json]") -> tuple[str, _Asked]:
        self._last += 1
        key = str(self._last)
        asked = self.questions[key] = _Asked(method, params)
        self.tell()
        return key, asked

    def tell(self) -> None:
        self._news.set()

    async def until_news(self, seconds: float | None) -> bool:
        """Wait for an outcome, a question, or another wait. False: none came in time."""
        self._news = anyio.Event()
        with anyio.move_on_after(seconds):
            await self._news.wait()
            return True
        return False


class Rounds:
    """The calls of clients without a handshake, and the questions to both kinds of clients."""

    def __init__(self, transport: "AgentTransport") -> None:
        """Begin without calls.

        Args:
            transport: reaches a client that has sent `initialize`.
        """
        self._transport = transport
        self._rounds: dict[str, _Round] = {}
        self._by_number: dict[int, _Round] = {}
        self._key = secrets.token_bytes(32)
        self._tasks: TaskGroup | None = None

    def run_in(self, tasks: TaskGroup) -> None:
        """Run calls in tasks of this group, whose owner ends them."""
        self._tasks = tasks

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
        key, asked = one.ask(method, params)
        try:
            with anyio.fail_after(seconds):
                await asked.is_answered.wait()
        finally:
            one.questions.pop(key, None)
        if asked.answer is None:
            raise AgentError("the agent gave no answer")
        return asked.answer

    @contextmanager
    def waiting(self, caller: Caller | None) -> Iterator[None]:
        """Answer the requests of this call before a client's deadline, meanwhile."""
        one = None if caller is None else self._by_number.get(caller.number)
        if one is None:
            yield
            return
        one.is_held = True
        one.tell()
        try:
            yield
        finally:
            one.is_held = False

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
            one = _Round(caller, method, request_id, params)
            if self._tasks is None or len(self._rounds) >= _MOST:
                return _FULL
            self._rounds[one.id] = self._by_number[caller.number] = one
            self._tasks.start_soon(self._run, one, work)
        else:
            found = self._found(state)
            if found is None or found.is_claimed:
                return _LOST
            if found.digest != _digest(method, params):
                return _OTHER
            one = found
            one.newest, one.request_id, one.token = caller, request_id, _token(params)
            _take(one, params.get("inputResponses"))
        return await self._answer(one)

    async def _run(self, one: _Round, work: Work) -> None:
        try:
            with one.scope:
                one.outcome = await work()
        except Exception:  # noqa: BLE001  one call's defect must not end the others
            _log.exception("a request could not be answered")
            one.outcome = _DEFECT
        one.tell()
        if not one.is_claimed:
            await anyio.sleep(_UNCLAIMED)
        if not one.is_claimed:
            self._forget(one)

    async def _answer(self, one: _Round) -> "ServerAnswer":
        one.is_claimed = True
        try:
            ends = anyio.current_time() + LEG
            while one.outcome is None and not one.scope.cancel_called:
                is_last = one.legs >= MOST_LEGS
                if one.questions and not is_last:
                    return self._required(one)
                left = ends - anyio.current_time()
                if one.is_held and left <= 0 and not is_last:
                    return self._required(one)
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
        result: dict[str, Json] = {"resultType": "input_required"}
        if one.questions:
            result["inputRequests"] = {
                key: {"method": asked.method, "params": dict(asked.params)}
                for key, asked in one.questions.items()
            }
        elif self._tasks is not None:
            self._tasks.start_soon(self._give_up, one, one.legs)
        return {"result": {**result, "requestState": self._sealed(one)}}

    async def _give_up(self, one: _Round, legs: int) -> None:
        """End a call whose client does not come back for it."""
        await anyio.sleep(_UNCLAIMED)
        if one.legs == legs and not one.is_claimed:
            one.scope.cancel()
            self._forget(one)

    def _forget(self, one: _Round) -> None:
        self._rounds.pop(one.id, None)
        self._by_number.pop(one.caller.number, None)

    # --- the state

    def _sealed(self, one: _Round) -> str:
        said = encode({"id": one.id, "call": one.digest, "leg": one.legs})
        return _PREFIX + base64.urlsafe_b64encode(self._mac(said) + said).decode("ascii")

    def _found(self, state: "Json") -> _Round | None:
        if not isinstance(state, str) or len(state) > _STATE_LENGTH:
            return None
        if not state.startswith(_PREFIX):
            return None
        with suppress(ValueError):
            sealed = base64.b64decode(state[len(_PREFIX) :], b"-_", validate=True)
            mac, said = sealed[:32], sealed[32:]
            # Of the ways to write the same bytes, only ours is known.
            is_ours = state == _PREFIX + base64.urlsafe_b64encode(sealed).decode("ascii")
            if is_ours and hmac.compare_digest(mac, self._mac(said)):
                message = decode(said)
                if not isinstance(message, Malformed):
                    return self._rounds.get(str(message.get("id")))
        return None

    def _mac(self, said: bytes) -> bytes:
        return hmac.digest(self._key, said, "sha256")


def _take(one: _Round, responses: "Json") -> None:
    """Give the client's answers to those who asked; what nobody asked is dropped."""
    for key, answer in (responses if isinstance(responses, dict) else {}).items():
        asked = one.questions.pop(key, None)
        if asked is not None:
            asked.answer = answer if isinstance(answer, dict) else None
            asked.is_answered.set()


def _token(params: "Mapping[str, Json]") -> "Json":
    meta = params.get("_meta")
    return meta.get("progressToken") if isinstance(meta, dict) else None


def _digest(method: str, params: "Mapping[str, Json]") -> str:
    """Return SHA-256 of what is asked for, equal for equal requests."""
    try:
        what = {key: _ordered(params.get(key)) for key in ("name", "uri", "arguments")}
        return hashlib.sha256(encode({"method": method, **what})).hexdigest()
    except (ValueError, RecursionError):
        return secrets.token_hex()  # nested too deep to be compared: equal to nothing


def _ordered(value: "Json") -> "Json":
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(one) for one in value] if isinstance(value, list) else value
