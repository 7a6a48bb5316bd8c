"""All sessions of the front, from their beginning to their end.

A session is a proxy of its own (docs/adr/0012): what one agent does, holds or breaks is nothing to
another. Its name is that of its principal and 128 random bits.
"""

import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ironcurtain_proxy.front.process import ProxyProcess
from ironcurtain_proxy.front.session import AgentSession
from ironcurtain_proxy.jsonrpc.codec import encode
from ironcurtain_proxy.jsonrpc.wire import STREAM_ENDED

MOST: Final = 32
"""The most sessions of one principal at once: each is a process, with servers of its own."""

_IDLE: Final = 30 * 60.0
"""Seconds without use after which a session ends."""

_LOOK: Final = 30.0

_log: Final = logging.getLogger(__name__)

READS_STREAM_ENDS: Final = encode({"jsonrpc": "2.0", "method": STREAM_ENDED})
"""What the front says first to each proxy, which is then told what only a front reads."""

Starter = Callable[[str, str], Awaitable[ProxyProcess]]
"""Starts the proxy of a session: its name, and whose it is."""
"""Starts the proxy of the session of this name."""


class TooManySessionsError(Exception):
    """A principal has as many sessions as it may have."""


class Sessions:
    """The sessions, by their names."""

    def __init__(self, start: Starter, *, max_waiting: int, patience: float) -> None:
        """Begin without sessions.

        Args:
            start: starts the proxy of a session.
            max_waiting: bytes that may wait for a client.
            patience: seconds that a proxy has to finish once its agent has gone.
        """
        self._start = start
        self._max_waiting = max_waiting
        self._patience = patience
        self._sessions: dict[str, AgentSession] = {}
        self._starting: dict[str, int] = {}
        self._shared: dict[str, AgentSession] = {}
        self._beginning: dict[str, anyio.Lock] = {}
        self._tasks: TaskGroup | None = None
        """The tasks of the sessions; None: `run` is not running."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the sessions until cancelled; then end all of them."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                while True:
                    await anyio.sleep(_LOOK)
                    for session in self._forgotten():
                        self.end(session)
        finally:
            self._tasks = None
            self._sessions.clear()

    def stop(self) -> None:
        """End all sessions, and refuse new ones."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        self._tasks = None

    async def begin(self, principal: str) -> AgentSession:
        """Begin a session.

        Raises:
            TooManySessionsError: its principal has too many, or the front ends.
            OSError: its proxy cannot be started.
        """
        own = sum(one.principal == principal for one in self._sessions.values())
        tasks = self._tasks
        if tasks is None or own + self._starting.get(principal, 0) >= MOST:
            raise TooManySessionsError
        name = f"{principal}-{secrets.token_hex(16)}"
        self._starting[principal] = self._starting.get(principal, 0) + 1
        try:
            process = await self._start(name, principal)
        finally:
            self._starting[principal] -= 1
        if self._tasks is not tasks:  # the front has begun to end meanwhile
            await process.end(0)
            raise TooManySessionsError
        session = AgentSession(name, principal, process, self._max_waiting)
        self._sessions[name] = session
        tasks.start_soon(self._live, session)
        return session

    async def shared(self, principal: str) -> AgentSession:
        """Return the one session of a principal whose requests belong to no session of a client.

        Raises:
            TooManySessionsError: its principal has too many, or the front ends.
            OSError: its proxy cannot be started.
        """
        async with self._beginning.setdefault(principal, anyio.Lock()):
            session = self._shared.get(principal)
            if session is None or session.has_ended or session.name not in self._sessions:
                session = await self.begin(principal)
                session.is_shared = True
                session.process.out.write(READS_STREAM_ENDS)
                self._shared[principal] = session
            session.used_at = time.monotonic()
            return session

    def find(self, principal: str, name: str) -> AgentSession | None:
        """A session of a principal; None: there is none of this name, or it is another's."""
        session = self._sessions.get(name)
        return session if session is not None and session.principal == principal else None

    def end(self, session: AgentSession) -> None:
        """End a session. Open calls are answered first, in a bounded time."""
        if self._sessions.pop(session.name, None) is not None:
            session.process.close_input()

    async def _live(self, session: AgentSession) -> None:
        patience = 0.0  # cancelled: the front itself ends
        try:
            await session.run()
            patience = self._patience
        except Exception:  # noqa: BLE001  one session's defect must not end the others
            _log.exception("a session was ended")
        finally:
            self._sessions.pop(session.name, None)
            await session.process.end(patience)

    def _forgotten(self) -> list[AgentSession]:
        now = time.monotonic()
        every = self._sessions.values()
        return [one for one in every if one.is_idle and now - one.used_at > _IDLE]
