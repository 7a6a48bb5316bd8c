"""MCP with one server, from the client's side, in the era that each request needs.

A server is spoken to after `initialize`, or without a handshake (`modern`), or in both ways. Knows
neither processes nor the meaning of a call. Every message of a server is untrusted. Results and
errors are handed back as they came.
"""

import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from ironcurtain_proxy.downstream import eras
from ironcurtain_proxy.downstream.conversation import (
    PASSED_ON,
    Conversation,
    Listeners,
    OpenServerQuestions,
    Standing,
)
from ironcurtain_proxy.downstream.eras import ServerDescription
from ironcurtain_proxy.downstream.listing import TOOLS, list_entries
from ironcurtain_proxy.downstream.notifications import (
    ServerSubscriptions,
    TokenKey,
    UnusableMessages,
    token_key,
    token_of,
)
from ironcurtain_proxy.errors import (
    DownstreamError,
    UnansweredError,
)
from ironcurtain_proxy.jsonrpc.codec import (
    MessageId,
    MirroredPaths,
    message_id,
    mirrored_arguments,
    version_of,
)
from ironcurtain_proxy.jsonrpc.pipes import STREAM_ENDED, LineSink, LineSource
from ironcurtain_proxy.model.operation import TOOL_CALL, Caller, Method, ProgressListener
from ironcurtain_proxy.model.server import ToolDefinition, ToolResult
from ironcurtain_proxy.model.values import Json

_DISCOVER: Final = 10.0
"""Seconds for a server to say what it is, over HTTP before it is greeted as servers of before."""

_FOR_EVER: Final = 31_536_000.0
"""Seconds for a request that stays open: a year."""

LEGACY_AGE: Final = 30.0
"""Seconds after which a list of a server that does not say so is asked for again."""

SUBSCRIBING: Final = frozenset({"resources/subscribe", "resources/unsubscribe"})

_STATE_ONLY: Final = 0.25
"""Seconds before a request that only has a state is sent again."""

_DOUBT: Final = 5.0
"""Seconds between two looks at whether a server over HTTP still is what it was."""


class Connection:
    """A conversation over a wire. `run` must be running for anything to be answered."""

    is_modern = False
    """Whether the server knows no handshake."""
    was_called = False
    """Whether a call has ended since its tools were listed: it may have changed them."""
    log_level: str | None = None
    """The least severe log messages that the agent wants, or None if it has not said so."""
    _serves_both = False
    """Whether it has had a handshake, and knows requests without one, too."""
    _group: TaskGroup | None = None
    _looked_at = -math.inf
    """When the server was last asked what it is."""
    _asks_for_roots = False
    _asked = 0
    """The number of lists of tools that were asked for."""
    _tools: tuple[int, tuple[ToolDefinition, ...]] = (0, ())
    """The newest of them that has come, with its number: over HTTP answers overtake each other."""
    _task_tools: frozenset[str] = frozenset()
    _offered: Mapping[str, Json] = eras.NO_CAPABILITIES
    """What the client of the connection can do: lists are asked for with that."""

    def __init__(
        self,
        server: str,
        wire: tuple[LineSource, LineSink],
        listeners: Listeners,
        dropped: UnusableMessages,
        max_message: int,
        standing: Standing | None = None,
    ) -> None:
        self._server = server
        self._listeners = listeners
        self._dropped = dropped
        self.standing = standing or Standing(None)
        """When the server's processes stand still."""
        self._talk = Conversation(
            wire, self, listeners.capacity, dropped, max_message, self.standing
        )
        self._progress: dict[TokenKey, ProgressListener] = {}
        self.greeted = ServerDescription()
        """The server's answer to `initialize` or `server/discover`."""
        self._ages: dict[str, float] = {}
        """Seconds for which each list may be shown, by its method."""
        self.mirrored: dict[str, MirroredPaths] = {}
        """The arguments that stand in headers, by the tool."""
        self._in_session: dict[str, AbstractSet[object]] = {}
        """What a server of both eras shows in its session alone, by the list."""
        self._tasks: set[str] = set()
        """The names of the server's tasks under way."""
        self._roots_told = anyio.Event()
        self._roots_told.set()
        self._questions = OpenServerQuestions(listeners.asked)
        self._subscriptions = ServerSubscriptions(self._listen)

    async def run(self) -> None:
        """Receive until the server closes its output; all waits end then."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                self._questions.answer_in(group)
                self._subscriptions.listen_in(group)
                await self._talk.run()
                group.cancel_scope.cancel()
        finally:
            # A call that ends now begins nothing in the group.
            self._group = None
            self._subscriptions.listen_in(None)
            self._talk.close()
            self._roots_told.set()

    def notify(self, method: str, params: Mapping[str, Json] | None = None) -> None:
        """Send a notification, unless the server has gone or does not read."""
        self._talk.notify(method, params)

    def note_roots_changed(self) -> None:
        """Tell the server that its roots have changed. One without a handshake asks each time."""
        if self.is_modern:
            return
        if self._roots_told.is_set():
            self._roots_told = anyio.Event()
        self.notify("notifications/roots/list_changed")

    async def until_roots_are_told(self, seconds: float) -> None:
        """Wait until the server has read its roots since their last change.

        There is no wait for a server that never asked for roots, or was once late by `seconds`.
        """
        if self._asks_for_roots and not self._roots_told.is_set():
            with anyio.move_on_after(seconds) as waited:
                await self._roots_told.wait()
            if waited.cancelled_caught:
                self._asks_for_roots = False
                self._dropped.note("its roots have changed, but it does not ask for them")

    async def initialize(
        self, seconds: float, *, over_http: bool, has_session: Callable[[], bool]
    ) -> None:
        """Find out what the server is, and greet it if its version has a handshake.

        Over HTTP a server is first asked without a handshake, and greeted all the same: one that
        serves both is spoken to as the client of each call speaks, because what it can ask differs
        in the two. It is spoken to without a handshake alone if it keeps no session, because it
        would not hear the answers to its questions. A process is greeted first: one that knows no
        handshake refuses, and is asked then. So no process of before meets a request that it does
        not know, on which some end, and some are silent.

        Args:
            seconds: for one answer.
            over_http: whether it is reached over HTTP, where answers to others tell more.
            has_session: tells whether it has begun a session, once it is greeted.

        Raises:
            DownstreamError: the server refuses, or does not answer within `seconds`.
        """
        self._talk.over_http = over_http
        found = await self._discovered(min(seconds, _DISCOVER)) if over_http else None
        refused: list[ToolResult] = []

        async def ask(params: Mapping[str, Json]) -> ToolResult:
            answer = await self.request("initialize", params, seconds)
            refused[:] = [answer] if answer.error is not None else []
            return answer

        offered = eras.ROOTS
        with anyio.move_on_after(seconds):
            offered = await self._listeners.capabilities(None)
            self._offered = {**offered, **eras.NO_CAPABILITIES}
        try:
            self.greeted = await eras.greet(self._server, ask, offered, is_modern=found is not None)
        except DownstreamError:
            if not over_http and any(eras.may_be_spoken(one) for one in refused):
                found = await self._discovered(min(seconds, _DISCOVER))
            if found is None:
                raise
            self._go_without_handshake(found)
            return
        if found is not None and not has_session():
            self._go_without_handshake(found)
            return
        self.notify("notifications/initialized")
        if found is not None:
            self._serves_both = True
            # What a request without a handshake changes need not be told in the session.
            self._subscriptions.follow(found.capabilities)

    def _go_without_handshake(self, found: ServerDescription) -> None:
        self.is_modern = True
        self.greeted = found
        self._subscriptions.follow(found.capabilities)

    async def _discovered(self, seconds: float) -> ServerDescription | None:
        """Return what the server says that it is, or None if it knows no such question.

        Raises:
            DownstreamError: it speaks no version in common, or it cannot be reached.
        """

        async def ask(_: Mapping[str, Json]) -> ToolResult:
            try:
                return await self.request("server/discover", asked, seconds)
            except UnansweredError:
                return ToolResult(error={})

        asked = eras.enveloped({}, eras.NO_CAPABILITIES)
        return await eras.discover(self._server, ask)

    def _doubt(self) -> None:
        """Look again at what a server over HTTP is: only errors come from one that has changed."""
        now = anyio.current_time()
        if self._talk.over_http and self._group is not None and now > self._looked_at + _DOUBT:
            self._looked_at = now
            self._group.start_soon(self._end_if_changed)

    async def _end_if_changed(self) -> None:
        """End the conversation if its server speaks otherwise than at its beginning.

        It was started again in another version, and no connection told us. A call under way is
        left alone: a server that only errs for a moment, or a gateway before it, looks the same.
        """
        with suppress(DownstreamError):
            found = await self._discovered(_DISCOVER)
            was_found = self.is_modern or self._serves_both
            if (found is not None) != was_found and not self._questions.under_way and self._group:
                self._dropped.note("it speaks otherwise than before, and is greeted again")
                self._group.cancel_scope.cancel()

    async def list_entries(
        self, method: str, keys: tuple[str, str], seconds: float
    ) -> Mapping[str, Mapping[str, Json]]:
        """Return all entries of a list by their names, in the server's order.

        A server of both eras is asked in both: what a call has changed in its session may be shown
        there alone. What only the session shows is used there.

        Args:
            method: `resources/list` and the like.
            keys: where the list stands in a page, and where an entry has its name.
            seconds: for one page.

        Raises:
            DownstreamError: it does not list them, or a page takes longer.
        """

        async def page(params: dict[str, Json]) -> ToolResult:
            return await self.request(method, params, seconds)

        async def page_of_session(params: dict[str, Json]) -> ToolResult:
            return await self._talk.exchange(method, params, min(seconds, _DISCOVER))

        hide = self._listeners.hidden if keys == TOOLS else None
        found = await list_entries(self._server, page, keys, self._dropped.note, hide)
        if self._serves_both and not self.has("tasks") and self.has(method.partition("/")[0]):
            with suppress(DownstreamError):
                more = await list_entries(self._server, page_of_session, keys, lambda _: None)
                self._in_session[method] = more.keys() - found.keys()
                found |= {name: more[name] for name in more if name not in found}
        return found

    def has(self, capability: str) -> bool:
        """Return whether the server declared this capability."""
        return isinstance(self.greeted.capabilities.get(capability), dict)

    async def list_tools(self, seconds: float) -> tuple[ToolDefinition, ...]:
        """Return all tools of the server, in its order.

        Raises:
            DownstreamError: it does not list them, or a page takes longer than `seconds`.
        """
        self._asked = number = self._asked + 1
        self.was_called = False
        listed = await self.list_entries("tools/list", TOOLS, seconds)
        if number < self._tools[0]:
            return self._tools[1]
        found = tuple([ToolDefinition(self._server, name, raw) for name, raw in listed.items()])
        if self._serves_both or (self.is_modern and self._talk.over_http):
            found = self._with_headers(found)
        self._task_tools = eras.task_tools(found, self.greeted.capabilities)
        self._tools = number, found
        return found

    def _with_headers(self, tools: tuple[ToolDefinition, ...]) -> tuple[ToolDefinition, ...]:
        """Note which arguments stand in headers; return the tools whose annotations are right."""
        kept: list[ToolDefinition] = []
        self.mirrored = {}
        for tool in tools:
            paths = mirrored_arguments(tool)
            if isinstance(paths, str):
                self._listeners.hidden(f'tool "{tool.name}" is hidden: {paths}')
                continue
            kept.append(tool)
            if paths:
                self.mirrored[tool.name] = paths
        return tuple(kept)

    async def call(
        self,
        params: Mapping[str, Json],
        seconds: float,
        on_progress: ProgressListener | None,
        method: Method = TOOL_CALL,
        caller: Caller | None = None,
    ) -> ToolResult:
        """Call a tool, or carry out another operation of the agent's.

        Raises:
            DownstreamError: no answer, none in time, or none that can be read.
        """
        key = None if on_progress is None else token_of(params)
        self._questions.under_way.append(caller)
        if on_progress is not None and key is not None:
            self._progress[key] = on_progress
        try:
            with self.standing:
                if method == TOOL_CALL and params.get("name") in self._task_tools:
                    return await eras.call_as_task(
                        self._server, self.request, params, seconds, self._tasks
                    )
                if method in SUBSCRIBING:
                    answer = await self._subscribe(method, params, seconds)
                elif self.is_modern or (caller is not None and self._is_shown_to_all(params)):
                    answer = await self._call_modern(method, params, seconds, caller)
                else:
                    answer = await self._talk.exchange(method, params, seconds)
                if answer.error is not None:
                    self._doubt()
                return answer
        except UnansweredError:
            self._doubt()
            raise
        finally:
            if key is not None and self._progress.get(key) is on_progress:
                del self._progress[key]
            self.was_called = self.was_called or method == TOOL_CALL
            self._questions.end(caller)

    async def _subscribe(
        self, method: Method, params: Mapping[str, Json], seconds: float
    ) -> ToolResult:
        """Subscribe to a resource, or no longer: in the session, and without one, as can be."""
        answer = ToolResult(error={})
        if not self.is_modern:
            answer = await self.request(method, params, seconds)
        if self.is_modern or self._serves_both:
            wanted = method == "resources/subscribe"
            other = await self._subscriptions.change(str(params["uri"]), seconds, wanted=wanted)
            if self.is_modern or (answer.error is not None and other.error is None):
                answer = other
        return answer

    def _is_shown_to_all(self, params: Mapping[str, Json]) -> bool:
        """Return whether a server of both eras has what a request names without a session, too."""
        name = params.get("name", params.get("uri"))
        return self._serves_both and not any(name in one for one in self._in_session.values())

    async def _call_modern(
        self, method: Method, params: Mapping[str, Json], seconds: float, caller: Caller | None
    ) -> ToolResult:
        """Carry out an operation without a handshake; what it wants to know is asked meanwhile."""
        offered = await self._listeners.capabilities(caller)
        level = self.log_level if caller is None else caller.log_level or None
        sent = eras.enveloped(params, {**offered, **eras.NO_CAPABILITIES}, level)
        began = anyio.current_time()
        answer = await self.request(method, sent, seconds)
        for _ in range(eras.MOST_ROUNDS):
            seconds += began - anyio.current_time()  # its own time; what is asked takes another's
            wanted = eras.wanted_by(method, answer)
            if wanted is None:
                break
            responses = await self._inputs(wanted, caller)
            if responses is None:
                break  # it is withheld as a question that nobody may ask
            if not responses:
                await anyio.sleep(_STATE_ONLY)
            began = anyio.current_time()
            try:
                answer = await self.request(method, wanted.retried(sent, responses), seconds)
            except UnansweredError:
                raise
            except DownstreamError as error:
                # The server has begun: nobody may take this for a call that was never sent.
                raise UnansweredError(str(error)) from None
        return answer

    async def _inputs(self, wanted: eras.Wanted, caller: Caller | None) -> dict[str, Json] | None:
        """Return the answers to the questions of an answer, or None if one must not be asked."""
        found: dict[str, Json] = {}
        for key, (method, params) in wanted.questions.items():
            if method == "roots/list":
                found[key] = {"roots": [dict(root) for root in self._listeners.roots()]}
                continue
            if self._listeners.asked is None:
                return None
            asks = None if caller is None else replace(caller, entry=key)
            said = (await self._listeners.asked(method, params, (asks,))).get("result")
            if not isinstance(said, dict):
                return None
            found[key] = said
        return found

    async def _listen(
        self, wanted: Mapping[str, Json], note_id: Callable[[int], None]
    ) -> ToolResult:
        sent = eras.enveloped({"notifications": dict(wanted)}, eras.NO_CAPABILITIES, self.log_level)
        return await self._talk.exchange(eras.LISTEN, sent, _FOR_EVER, note_id)

    async def request(self, method: str, params: Mapping[str, Json], seconds: float) -> ToolResult:
        """Send a request and wait for its answer. If the wait ends early, the server is told.

        Raises:
            DownstreamError: no answer, none within `seconds`, or none that can be read.
        """
        is_list = method.endswith("/list")
        # Without a handshake a list says how old it may become; with one, which tools are tasks.
        is_aged = self._serves_both and is_list and not self.has("tasks")
        is_modern = self.is_modern or is_aged
        if is_modern and not version_of({"params": params}):  # type: ignore[dict-item]
            params = eras.enveloped(params, self._offered)
        with self.standing:
            answer = await self._talk.exchange(method, params, seconds)
        if is_list:
            age = eras.age_of(answer.result or {}, LEGACY_AGE)
            self._ages[method] = min(age, self.age_of(method)) if "cursor" in params else age
        return answer

    def age_of(self, method: str) -> float:
        """Return for how many seconds a list may be shown, all its pages together."""
        return self._ages.get(method, LEGACY_AGE)

    async def take_notice(self, method: Json, params: Mapping[str, Json], size: int) -> None:
        """Act on a notification of the server; whom it concerns is told."""
        known = eras.without_subscription(params)
        match method:
            case "notifications/progress":
                key = token_key(known.get("progressToken"))
                listener = None if key is None else self._progress.get(key)
                if listener is not None and self._listeners.notices.admits("progress", size):
                    await self._tell(listener, known)
            case "notifications/message":
                if self._listeners.notices.admits("message", size):
                    await self._tell(self._listeners.logged, known)
            case str() if method in PASSED_ON:
                await self._pass_on(method, known, size)
            case eras.ACKNOWLEDGED:
                if self._subscriptions.note_acknowledged(params):
                    await self._listeners.missed()
            case _:
                self._note(method, params)

    async def note_stream_ended(self, *, of_call: bool) -> None:
        """Tell our front of a call's stream, and the rest of what may have been missed."""
        await (self._pass_on(STREAM_ENDED, {}, 0) if of_call else self._listeners.missed())

    def _note(self, method: Json, params: Mapping[str, Json]) -> None:
        """Act on a notification that nobody else is told of."""
        match method:
            case "notifications/tools/list_changed":
                self._listeners.tools_changed()
            case "notifications/cancelled":
                self._questions.withdraw(message_id(params.get("requestId")))
            case _:
                pass

    async def _pass_on(self, method: str, params: Mapping[str, Json], size: int) -> None:
        if self._listeners.notices.admits(method, size):
            await self._tell(partial(self._listeners.noticed, method), params)

    async def _tell(self, listener: ProgressListener, params: Mapping[str, Json]) -> None:
        try:
            await listener(params)
        except Exception as error:  # noqa: BLE001  the agent's trouble must not end a server
            self._dropped.note(f"a notification could not be passed on ({type(error).__name__})")

    def take_request(
        self, request_id: MessageId | None, method: Json, params: Mapping[str, Json]
    ) -> None:
        """Answer a request of the server.

        Its questions would reach the agent's model and user, so the policy decides on each as an
        operation; what nobody serves is recorded.
        """
        if self.is_modern or request_id is None:
            why = "without a handshake there are none" if self.is_modern else "its id is no id"
            self._dropped.note(f"a request was not answered: {why}")
            return
        match method:
            case "ping":
                self._talk.reply(request_id, {"result": {}})
            case "roots/list":
                self._talk.reply(request_id, {"result": {"roots": list(self._listeners.roots())}})
                self._asks_for_roots = True
                self._roots_told.set()
            case _:
                reply = partial(self._talk.reply, request_id)
                if not self._questions.take(str(method), params, reply, request_id):
                    self._dropped.note("a request was refused: too many are open")
