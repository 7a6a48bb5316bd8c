"""Second instances of servers, each with the access approved for one call.

Theory of operation: the sandbox of a running process is never widened, because whatever an earlier
call left behind in it would gain the access, too. An approved opening starts a second instance of
the server with a wider sandbox instead:

    call + opening ── instance for (server, opening)? ─┬─ ready ──▶ same tools as the first? ─▶ call
                                                       └─ none: start it, at most 4 at a time

An instance ends with its call: a process that the call left behind would keep the access. Where a
remembered approval covers later calls, it serves those with the same opening, and ends after 60 s
without a call. A call is sent only while the second instance lists exactly the tools of the first
one, whose definitions were judged and approved. When containment ends, instances get no new calls;
each ends after its last call.
"""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.downstream.session_log import SessionLog
from ironcurtain_proxy.downstream.starting import DownstreamOptions, Hooks, make_private
from ironcurtain_proxy.downstream.supervisor import Supervisor
from ironcurtain_proxy.errors import ConfigurationError, ServerUnavailableError, UnansweredError
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.server import ServerSpec

if TYPE_CHECKING:
    from ironcurtain_proxy.sandbox.launch import Confinement
    from ironcurtain_proxy.sandbox.watchman import Watchman

IDLE: Final = 60.0
"""Seconds that a second instance lives without a call."""
_START: Final = 60.0
"""Seconds for its start."""
_MOST: Final = 4
"""The most second instances at a time: each needs the memory of a whole sandbox."""

_InstanceKey: TypeAlias = tuple[str, SandboxOpening, int]
"""The server, what is opened, and a number of its own where a path is: such an instance serves one
call."""


class SecondInstance(Struct, eq=False):
    """A second instance of one server."""

    supervisor: Supervisor
    confinement: "Confinement"
    idle_since: float
    watch: "Watchman | None" = None
    """Looks after what was opened for it, or None if nothing was, besides hosts."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    calls: int = 0
    """The calls in progress."""
    not_carried: tuple[str, ...] = ()
    """What an approved path holds no more than before, with the reason."""
    for_later: bool = False
    """Whether a remembered approval has brought one of its calls."""


class SecondInstances(Struct, eq=False):
    """The second instances of one session's servers."""

    options: DownstreamOptions
    hooks: Callable[[], Hooks]
    log: SessionLog
    idle: float = IDLE
    _living: dict[_InstanceKey, SecondInstance] = field(default_factory=dict)
    _starting: dict[_InstanceKey, anyio.Lock] = field(default_factory=dict)
    _group: TaskGroup | None = None
    _count: int = 0
    _uses: int = 0

    async def run(self) -> None:
        """Let second instances live until cancelled; then end them."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                while True:
                    await anyio.sleep(min(self.idle, 5.0) / 2)
                    since = anyio.current_time() - self.idle
                    for one in [*self._living.values()]:
                        if not one.calls and one.idle_since <= since:
                            one.scope.cancel()
            finally:
                self._group = None

    def close(self) -> None:
        """End every second instance after its calls, because approvals no longer hold."""
        for key in list(self._living):
            self._retire(key)

    @asynccontextmanager
    async def use(
        self, first: Supervisor, opening: SandboxOpening
    ) -> AsyncIterator[SecondInstance]:
        """Hold the second instance of a server for an opening, for the time of a call.

        Raises:
            ServerUnavailableError: there is none, or its tools differ from the first one's.
        """
        self._uses += 1
        key = (first.spec.name, opening, self._uses if opening.paths else 0)
        async with self._starting.setdefault(key, anyio.Lock()):
            second_instance = self._living.get(key)
            if second_instance is not None and second_instance.supervisor.status().state != "ready":
                await self._end(key, second_instance)
                second_instance = None
            if second_instance is None:
                second_instance = await self._start(first.spec, key)
            second_instance.calls += 1
            second_instance.for_later |= opening.for_later and not opening.paths
        try:
            # The first instance's tool was judged and approved. A server may tell each instance
            # another story, and change it at any time.
            if second_instance.supervisor.tools != first.tools:
                raise ServerUnavailableError(
                    f'the second instance of server "{first.spec.name}" lists other tools than '
                    "the first: the call was not sent"
                )
            yield second_instance
        finally:
            second_instance.calls -= 1
            second_instance.idle_since = anyio.current_time()
            is_over = (
                not (second_instance.for_later or second_instance.calls)
                or second_instance.supervisor.tools != first.tools
            )
            if self._living.get(key) is second_instance and is_over:
                self._retire(key)
            elif self._living.get(key) is not second_instance and not second_instance.calls:
                second_instance.scope.cancel()
            await self._carried(key, second_instance)
        if second_instance.not_carried:
            raise UnansweredError(f"the call ran, but {'; '.join(second_instance.not_carried)}")

    async def _carried(self, key: _InstanceKey, second_instance: SecondInstance) -> None:
        """Wait until what a call wrote is in its place, once nothing of its instance runs."""
        if key[1].paths:
            del self._starting[key]
            with anyio.CancelScope(shield=True):
                await second_instance.ended.wait()

    def _retire(self, key: _InstanceKey) -> None:
        """Send no more calls to an instance, and end it after its last call."""
        second_instance = self._living.pop(key)
        if not second_instance.calls:
            second_instance.scope.cancel()

    async def _start(self, spec: ServerSpec, key: _InstanceKey) -> SecondInstance:
        group = self._group
        if group is None:
            raise ServerUnavailableError(f'server "{spec.name}" has no second instance now')
        await self._make_room(spec)
        second_instance = await self._made(spec, key[1])
        self._living[key] = second_instance
        group.start_soon(self._live, key, second_instance)
        with anyio.move_on_after(_START):
            await second_instance.supervisor.tried.wait()
        found = second_instance.supervisor.status()
        if found.state != "ready":
            await self._end(key, second_instance)
            why = found.error or "it takes too long to start"
            raise ServerUnavailableError(f"no second instance for the approved call: {why}")
        return second_instance

    async def _made(self, spec: ServerSpec, opening: SandboxOpening) -> SecondInstance:
        from ironcurtain_proxy.sandbox.second_instance import (  # noqa: PLC0415  few calls need one
            in_views,
            left_closed,
            widened,
        )

        options, state = self.options, self.options.state
        first = options.confinements.get(spec.name)
        if first is None or state is None:
            raise ServerUnavailableError(f'server "{spec.name}" is not confined')
        self._count += 1
        directory = state / f"{spec.name}.second-{self._count}.cwd"
        own = options.is_own_directory(spec.cwd)
        home = options.environment.get("HOME", "/")
        watch: Watchman | None = None
        try:
            make_private(directory)
            confinement = widened(
                first,
                opening,
                former=spec.cwd if own else None,
                temporary=str(directory),
                home=home,
            )
            _, beyond = in_views(first.views, opening)
            if options.watchman is not None and beyond.paths:
                places = left_closed(beyond, home)
                with anyio.CancelScope(shield=True):  # a watch that nobody has would never end
                    watch = await anyio.to_thread.run_sync(
                        options.watchman.opened, places, [str(one) for one in opening.paths]
                    )
        except (ConfigurationError, OSError) as error:
            raise ServerUnavailableError(f"no second instance: {error}") from None
        second = replace(spec, cwd=str(directory)) if own else spec
        hooks = self.hooks()
        return SecondInstance(
            Supervisor(
                second,
                replace(options, confinements={spec.name: confinement}),
                # Its tools are compared with the first's, and announced by nobody.
                Hooks(
                    on_log=hooks.on_log,
                    roots=hooks.roots,
                    capacity=hooks.capacity,
                    batch=hooks.batch,
                ),
                self.log,
                _nothing,
            ),
            confinement,
            anyio.current_time(),
            watch,
        )

    async def _live(self, key: _InstanceKey, second_instance: SecondInstance) -> None:
        """Run an instance until it is ended."""
        try:
            with second_instance.scope:
                async with anyio.create_task_group() as tasks:
                    if second_instance.watch is not None:
                        tasks.start_soon(second_instance.watch.run)
                    await second_instance.supervisor.run()
                    tasks.cancel_scope.cancel()
        finally:
            stages = second_instance.confinement.stages
            with anyio.CancelScope(shield=True):
                for stage in stages:
                    second_instance.not_carried += await anyio.to_thread.run_sync(stage.carry)
            if second_instance.watch is not None and self.options.watchman is not None:
                self.options.watchman.ended(second_instance.watch)
            if self._living.get(key) is second_instance:
                del self._living[key]
            directory = second_instance.confinement.temporary
            if directory is not None:
                with suppress(OSError):
                    shutil.rmtree(Path(directory))
                if stages:
                    shutil.rmtree(f"{directory}.staged", ignore_errors=True)
            second_instance.ended.set()

    async def _end(self, key: _InstanceKey, second_instance: SecondInstance) -> None:
        if self._living.get(key) is second_instance:
            del self._living[key]
        second_instance.scope.cancel()
        await second_instance.ended.wait()

    async def _make_room(self, spec: ServerSpec) -> None:
        idle = [one for one in self._living.items() if not one[1].calls]
        while len(self._living) >= _MOST and idle:
            oldest = min(idle, key=lambda one: one[1].idle_since)
            idle.remove(oldest)
            await self._end(*oldest)
        if len(self._living) >= _MOST:
            raise ServerUnavailableError(
                f'server "{spec.name}": {_MOST} second instances are at work; try again later'
            )


async def _nothing(_: bool) -> None:  # noqa: FBT001  as it is called
    return
