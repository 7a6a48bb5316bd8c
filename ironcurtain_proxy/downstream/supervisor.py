"""Supervision of one server across its processes.

    starting ── process, initialize, tools/list ──▶ ready ── the process ends ──▶ restarting
        └─ fails ──▶ failed     both: a new start after a delay, doubled from 0.1 s to 30 s

The server's tools stay listed while it restarts. The delay begins anew after 30 s of readiness.
Calls in progress fail with the process. They are never repeated, because they may have been done.
"""

import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from ironcurtain_proxy.downstream.connection import LEGACY_AGE, Connection
from ironcurtain_proxy.downstream.conversation import Listeners, Standing
from ironcurtain_proxy.downstream.environment import secrets_of
from ironcurtain_proxy.downstream.eras import ServerDescription, news_besides, wanted_news
from ironcurtain_proxy.downstream.notifications import LeftOut, UnusableMessages
from ironcurtain_proxy.downstream.roots import ServerRoots
from ironcurtain_proxy.downstream.session_log import Allowance, OutputLimit, SessionLog
from ironcurtain_proxy.downstream.starting import (
    DownstreamOptions,
    Hooks,
    Life,
    Prober,
    ServerState,
    ServerStatus,
    Started,
    start_server,
)
from ironcurtain_proxy.errors import ConfigurationError, DownstreamError, ServerUnavailableError
from ironcurtain_proxy.jsonrpc.codec import value_at
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.operation import Method
from ironcurtain_proxy.model.server import (
    SandboxRestrictions,
    ServerSpec,
    ToolDefinition,
)
from ironcurtain_proxy.model.values import Json

if TYPE_CHECKING:
    from ironcurtain_proxy.downstream.load import Load

_LOGGER: Final = logging.getLogger(__name__)

FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 30.0
"""Seconds between two processes: doubled each time, from the first to the longest."""

_SETTLED: Final = 30.0
"""Seconds of readiness after which the delay begins anew."""

_QUIET: Final = 0.1
"""Seconds between two listings of tools, however many changes the server reports."""

_LISTINGS: Final = 20
_SLOW: Final = 5.0
"""Seconds between two listings after `_LISTINGS` in a row: agents list again, too."""

_TRIES: Final = 3
"""Starts for which a call waits: what starts a sandbox fails by chance on a busy machine."""

_TELL_ROOTS: Final = 5.0
"""Seconds for a server to read changed roots."""

_WITHDRAW_AGAIN: Final = (0.5, 4.5)
"""Seconds before a server that lost a root reads its roots again, and before it does once more."""

_UNTIL_ENDED: Final = 1.0
"""Seconds for the end of a server that does not read any more."""

_NEW_TOOL: Final = 1.0
"""Seconds after which a list is old for a call of a tool that it lacks."""

_MOST_REASON: Final = 300
"""Characters of the reason, for the agent, why a server does not start."""

_LIST_AGAIN: Final = 2.0
"""Seconds that a list of the agent's waits for an old list of one server to be renewed."""

_SAID_HIDDEN: Final = 10
"""The most hidden tools that are reported by name."""

_ASKED: Final = 5.0
"""Seconds for `resources/subscribe` after a restart, and for `logging/setLevel`."""


class Supervisor:
    """One server, across all its processes.

    `announce` is called whenever its tools may be others than before, with whether it says so.
    """

    _listed_at = math.inf
    """The loop's time of the last list of tools; infinite while an old one is renewed."""
    _group: TaskGroup | None = None
    _withdrawals = 0
    load: "Load | None" = None
    """The load of the running process's sandbox, or None if it is not bounded."""

    def __init__(
        self,
        spec: ServerSpec,
        options: DownstreamOptions,
        hooks: Hooks,
        log: SessionLog,
        announce: Callable[[bool], Awaitable[None]],
    ) -> None:
        self.spec = spec
        self.tools: tuple[ToolDefinition, ...] = ()
        """The tools; during a restart the previous ones, none if it cannot be started."""
        self.settled, self.tried = anyio.Event(), anyio.Event()
        """Set once the server was ready, or its first start has failed, or all that count."""
        self._options = options
        self._hooks = hooks
        self.roots = ServerRoots(lambda: hooks.roots(spec.name))
        """The server's roots."""
        self._log = log
        self._announce = announce
        self._dropped = UnusableMessages(spec.name, secrets_of(spec), log)
        # Across all processes: a restart does not reset the limits.
        self._left_out = LeftOut(spec.name, log, self._pass_on_log)
        self._ration = OutputLimit()
        self._listings = Allowance(1 / _SLOW, _LISTINGS)
        self._state: ServerState = "starting"
        self._error = ""
        self._starts, self._tries = 0, _TRIES
        self._ready_since = math.inf
        self._started: Life | None = None
        self.is_sandboxed = False
        """Whether the running process is confined."""
        self._prober = Prober(spec, options)
        self._connection: Connection | None = None
        # Until when the agent's lists wait for one that is renewed stands last.
        self._tools_changed, self._relisted, self._waits_until = anyio.Event(), anyio.Event(), 0.0
        self._why = self._last_words = ""
        self._hidden, self._said = set[str](), set[str]()
        self._log_level: str | None = None
        self._subscribed: dict[str, None] = {}
        """The resources of which the server tells news."""

    @property
    def connection(self) -> Connection:
        """The conversation with the running server.

        Raises:
            ServerUnavailableError: it is not running.
        """
        if self._connection is None:
            why = f": {self.why_missing}" if self.why_missing else ""
            again = "; it is being restarted, try again" if self._state == "restarting" else why
            raise ServerUnavailableError(f'server "{self.spec.name}" is not running{again}')
        return self._connection

    @property
    def greeted(self) -> ServerDescription:
        """The running server's description of itself, or empty if it does not run."""
        return ServerDescription() if self._connection is None else self._connection.greeted

    @property
    def standing(self) -> Standing | None:
        """When the running process stands still, or None if there is none."""
        return None if self._connection is None else self._connection.standing

    async def restrictions(self) -> SandboxRestrictions | None:
        """Return the restrictions of the running process, or None if it is not confined."""
        process = self._started
        found = await self._prober.restrictions(process) if isinstance(process, Started) else None
        return found if self._prober.is_about(self._started) else None

    def status(self) -> ServerStatus:
        """Return the state of the server."""
        error = self._error
        if self._state == "starting" and not error and self._dropped.printed:
            error = f'server "{self.spec.name}" has not answered yet{self._dropped.printed}'
        return ServerStatus(
            state=self._state,
            error=error,
            tools=len(self.tools),
            starts=self._starts,
            pid=None if self._started is None else self._started.pid,
            sandboxed=self.is_sandboxed,
        )

    @property
    def why_missing(self) -> str:
        """The reason, for the agent, why the server does not start, or empty if it has not failed.

        Its last words are for the operator, in `status` and on standard error.
        """
        if self._state != "failed":
            return ""
        why = self._why.removeprefix(f'server "{self.spec.name}" ')
        return visible(why if why == self._why else f"it {why}")[:_MOST_REASON]

    def only_reads(self, tool: str) -> bool:
        """Return whether the server marks its tool as read-only. Untrusted."""
        hints = [found.raw.get("annotations") for found in self.tools if found.name == tool]
        return any(isinstance(hint, dict) and hint.get("readOnlyHint") is True for hint in hints)

    def start_process(self) -> Life:
        """Return the running process, started if need be. Needs no event loop.

        Raises:
            ConfigurationError: it cannot work as it is configured.
            ServerUnavailableError: no process could be made.
        """
        if self._started is None:
            self._started = self._begin()
            self.is_sandboxed = self._started.sandboxed
            self.load = self._started.load if isinstance(self._started, Started) else None
            self._starts += 1
        return self._started

    def _begin(self) -> Life:
        if self.spec.remote is None:
            return start_server(self.spec, self._options, self._log, self._ration)
        # Slow to import, and only needed for servers over HTTP.
        from ironcurtain_proxy.downstream.remote.session import begin_session  # noqa: PLC0415

        return begin_session(self.spec, self.spec.remote, self._options, self._say_once)

    async def run(self) -> None:
        """Run the server, and restart it, until cancelled; then end the process."""
        delay = FIRST_DELAY
        try:
            while True:
                self._ready_since = math.inf
                await self._live()
                if anyio.current_time() - self._ready_since >= _SETTLED:
                    delay = FIRST_DELAY
                await anyio.sleep(delay)
                delay = min(2 * delay, LONGEST_DELAY)
        except ConfigurationError as error:
            self._tries = 0
            await self._fail(str(error))
            await anyio.sleep_forever()
        finally:
            self._state = "stopped"

    def notify_roots_changed(self) -> None:
        """Notify a running server that its roots have changed."""
        if self._connection is not None:
            self._connection.note_roots_changed()

    @contextlib.asynccontextmanager
    async def open_roots(self, directories: Sequence[str]) -> AsyncIterator[tuple[str, ...]]:
        """Add directories to the server's roots; see `DownstreamServers.open_roots`.

        Returns the added ones.
        """
        before = set(self.roots.opened())
        opened = self.roots.open(directories)
        try:
            self._notify_if_other_than(before)
            if opened and self._connection is not None:
                await self._connection.until_roots_are_told(_TELL_ROOTS)
            yield opened
        finally:
            before = set(self.roots.opened())
            self.roots.close(opened)
            is_less = self._notify_if_other_than(before)
            if is_less and self._connection is not None and self._group is not None:
                self._group.start_soon(self._withdraw_again)

    async def tell_roots_again(self) -> None:
        """Make the server read its roots again, and wait until it has."""
        self.notify_roots_changed()
        if self._connection is not None:
            await self._connection.until_roots_are_told(_TELL_ROOTS)

    def _notify_if_other_than(self, before: set[str]) -> bool:
        is_other = set(self.roots.opened()) != before
        if is_other:
            self.notify_roots_changed()
        return is_other

    async def _withdraw_again(self) -> None:
        """Make the server read its roots again, unless a later withdrawal does.

        A server that reads two lists at once, such as npm's filesystem, may apply the older one
        last: the directory would stay open there for all calls.
        """
        self._withdrawals = mine = self._withdrawals + 1
        for pause in _WITHDRAW_AGAIN:
            await anyio.sleep(pause)
            if mine == self._withdrawals:
                self.notify_roots_changed()

    async def set_log_level(self, level: str) -> None:
        """Set the log level of a server that has one; also after a restart."""
        self._log_level = self._left_out.log_level = level
        if self._connection is not None:
            await self._apply_log_level(self._connection)

    async def _live(self) -> None:
        """Run one process from its start to its end."""
        self._last_words = ""
        self._dropped.forget_printed()
        try:
            why = await self._serve(self.start_process())
        except (DownstreamError, OSError) as error:
            why = str(error)
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001  a defect here must not end the other servers
            why = f'server "{self.spec.name}" met a defect of the proxy: {type(error).__name__}'
        if self._ready_since == math.inf:
            await self._fail(why)
        else:
            self._error = why + self._last_words
            self._warn(f"{self._error}; it is started again")

    async def _serve(self, started: Life) -> str:
        """Serve a process until it or the conversation ends. Returns the reason as text."""
        trouble: list[str] = []
        has_ended = False
        try:
            connection = await self._connect(started)
            async with anyio.create_task_group() as group:
                self._group = group
                group.start_soon(self._look_after, connection, started, group.cancel_scope, trouble)
                group.start_soon(started.watch)
                group.start_soon(connection.standing.run)
                group.start_soon(self._left_out.say)
                await connection.run()
                has_ended = True
                # Before the tasks of the failed calls continue and call again.
                self._disconnect()
                group.cancel_scope.cancel()
        finally:
            self._disconnect()
            self._left_out.count()
            with anyio.CancelScope(shield=True):
                await started.close()
            self._started = self.load = None
            self.is_sandboxed = False
        self._last_words = "".join(trouble[1:]) + self._repeated(started)
        if has_ended or not trouble:
            return f'server "{self.spec.name}" ended: {started.ending()}'
        return trouble[0]

    def _repeated(self, started: Life) -> str:
        """Return the last output of a process, and the file with the rest, for the operator."""
        words = started.last_words
        said = f'; it said last: "{words}"' if words else ""
        if self._ready_since == math.inf:
            # Else the reason is another one: it has spoken MCP.
            said = f"{self._dropped.printed}{said}"
        return f"{said} (log: {self._log.path})" if self._log.is_open else said

    def _disconnect(self) -> None:
        self._connection = None
        if self._state == "ready":
            self._state = "restarting"

    async def _connect(self, started: Life) -> Connection:
        cap, ask, name = self._options.max_message_bytes, self._hooks.on_question, self.spec.name
        wire = await started.open(cap, self._hooks.batch)
        listeners = Listeners(
            tools_changed=lambda: self._tools_changed.set(),  # noqa: PLW0108  each has a new one
            logged=self._pass_on_log,
            roots=self.roots.listing,
            hidden=self._say_hidden,
            capacity=self._hooks.capacity,
            notices=self._left_out.notices,
            noticed=self._pass_on_notice,
            missed=self._note_missed,
            asked=None if ask is None else partial(ask, name),
            capabilities=partial(self._hooks.capabilities, name),
        )
        standing = Standing(started.still if isinstance(started, Started) else None)
        return Connection(name, wire, listeners, self._dropped, cap, standing)

    async def _look_after(
        self,
        connection: Connection,
        started: Life,
        scope: anyio.CancelScope,
        trouble: list[str],
    ) -> None:
        """Initialize the server, then list its tools again after each reported change.

        Args:
            connection: to the server.
            started: its process, or what stands for it.
            scope: cancelled at the end.
            trouble: gets why the server cannot be used, and what it answered, for the operator.
        """
        seconds = self._options.initialize_timeout
        try:
            remote = self.spec.remote
            await connection.initialize(
                seconds,
                over_http=remote is not None and remote.transport != "sse",
                has_session=started.has_session,
            )
            with anyio.fail_after(seconds):
                await self._list(connection)
        except DownstreamError as error:
            trouble += [str(error), *getattr(error, "__notes__", ())]
            if isinstance(error, ServerUnavailableError):
                # It reads no more. Where it has ended, how it ended says more, and is seen soon.
                await anyio.sleep(_UNTIL_ENDED)
        except TimeoutError:
            trouble.append(f'server "{self.spec.name}" takes too long to list its tools')
        else:
            await self._be_ready(connection)
            while True:
                await self._tools_changed.wait()
                self._tools_changed = anyio.Event()
                await self._list_again(connection, is_told=True)
                await anyio.sleep(_QUIET if self._listings.take(1) else _SLOW)
        scope.cancel()

    def note_subscription(self, method: Method, uri: str) -> None:
        """Note what a server was asked to tell of, so that its next process is asked, too."""
        if method == "resources/subscribe":
            self._subscribed[uri] = None
        else:
            self._subscribed.pop(uri, None)

    async def _be_ready(self, connection: Connection) -> None:
        await self._apply_log_level(connection)
        for uri in [*self._subscribed]:
            with contextlib.suppress(DownstreamError):
                await connection.call({"uri": uri}, _ASKED, None, "resources/subscribe")
        self._connection = connection
        self._ready_since = anyio.current_time()
        self._state, self._error = "ready", ""
        was_ready = self.settled.is_set()
        self.settled.set()
        self.tried.set()
        await self._announce(False)  # noqa: FBT003  private
        if was_ready:
            await self._tell_missed()

    async def _note_missed(self) -> None:
        self._tools_changed.set()
        await self._tell_missed()

    async def _tell_missed(self) -> None:
        """Tell of what the server tells of besides its tools: nobody has listened for a while."""
        wanted = wanted_news(self.greeted.capabilities, [*self._subscribed])
        for method, params in news_besides(wanted):
            if self._left_out.notices.admits(method, 0):
                await self._pass_on_notice(method, params)

    async def _list_again(self, connection: Connection, *, is_told: bool = False) -> None:
        """List the tools, and announce other ones, or whatever the server tells of itself."""
        before = self.tools
        try:
            await self._list(connection)
        except DownstreamError as error:
            self._dropped.note(f"its tools changed, but: {error}")
            self._listed_at = -math.inf  # whoever asks next asks it again
        if is_told or before != self.tools:
            await self._announce(is_told)
        self._relisted.set()

    async def _list(self, connection: Connection) -> None:
        found = await connection.list_tools(self._options.initialize_timeout)
        # Here and nowhere later: what is not shown does not exist for anybody.
        self.tools = tuple([tool for tool in found if self.spec.tools.has(tool.name)])
        self._listed_at = anyio.current_time()
        if self._started is not None:
            self._started.learn(connection.mirrored)

    async def list_if_old(self, *, for_new: bool = False) -> None:
        """List the tools again if they are older than the server says, or than a list may be.

        A call may have changed them, where the server does not say that it tells of changes. All
        wait for one list, but only for a while: one that comes later is announced.

        Args:
            for_new: whether a tool is called that the list lacks: then any list is soon old.
        """
        connection, group, now = self._connection, self._group, anyio.current_time()
        if connection is None or group is None:
            return
        age = now - self._listed_at
        most = _NEW_TOOL if for_new else max(connection.age_of("tools/list"), _QUIET)
        tells = value_at(connection.greeted.capabilities, "tools", "listChanged") is True
        may_differ = connection.was_called and not (tells or for_new)
        if age > most or (age >= 0 and may_differ):
            if not self._listings.take(1):
                return
            self._listed_at, self._waits_until = math.inf, now + _LIST_AGAIN
            self._relisted = anyio.Event()
            group.start_soon(self._list_again, connection)
        if self._listed_at == math.inf:
            with anyio.CancelScope(deadline=self._waits_until):
                await self._relisted.wait()

    def lasts(self, method: str) -> float:
        """Return for how many seconds more a client may show a list as it is now."""
        if self._connection is None:
            return LEGACY_AGE
        age = self._connection.age_of(method)
        passed = abs(anyio.current_time() - self._listed_at) if method == "tools/list" else 0.0
        return max(age - passed, 0.0)

    async def _apply_log_level(self, connection: Connection) -> None:
        connection.log_level = self._log_level
        if self._log_level is not None and connection.has("logging") and not connection.is_modern:
            with contextlib.suppress(DownstreamError):
                await connection.request("logging/setLevel", {"level": self._log_level}, _ASKED)

    def _say_hidden(self, what: str) -> None:
        """Report a hidden tool to the operator, once, and at most a few tools."""
        if what not in self._hidden and len(self._hidden) <= _SAID_HIDDEN:
            self._hidden.add(what)
            more = len(self._hidden) > _SAID_HIDDEN
            self._warn(f'server "{self.spec.name}": {"more tools are hidden" if more else what}')

    async def _pass_on_notice(self, method: str, params: Mapping[str, Json]) -> None:
        await self._hooks.on_notice(self.spec.name, method, params)

    async def _pass_on_log(self, params: Mapping[str, Json]) -> None:
        await self._hooks.on_log(self.spec.name, params)

    async def _fail(self, why: str) -> None:
        # A repeated failure is reported once, whatever numbers its last words hold.
        if (self._state, self._why) != ("failed", why):
            self._warn(f"{why}{self._last_words}; going on without it", self._options.failures)
        self._state, self._error, self._why = "failed", why + self._last_words, why
        had_tools = bool(self.tools)
        self.tools = ()
        self.settled.set()
        self._tries -= 1
        if self._tries <= 0:
            self.tried.set()
        if had_tools:
            await self._announce(False)  # noqa: FBT003  private

    def _say_once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._warn(f'server "{self.spec.name}": {what}')

    def _warn(self, text: str, level: int = logging.WARNING) -> None:
        _LOGGER.log(level, "%s", text)
        self._log.write(self.spec.name, f"(proxy) {text}")
