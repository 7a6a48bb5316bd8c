"""What a server without a handshake is listened to for: one request that stays open.

    follow(), change() ──▶ subscriptions/listen ──▶ acknowledged ──▶ news, until the server ends it
                                 ▲                                              │
                                 └── after a pause, or when something else is wanted

The request before is ended only when its server has acknowledged the next one, so that no news is
lost between the two.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ironcurtain_proxy.downstream.modern import wanted_news
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ToolResult

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
"""Seconds before a server is listened to again."""

_METHOD_NOT_FOUND: Final = -32601


class ServerSubscriptions:
    """What one server is listened to for."""

    def __init__(self, listen: Callable[[Mapping[str, Json]], Awaitable[ToolResult]]) -> None:
        self._listen = listen
        self._capabilities: Mapping[str, Json] = {}
        self._uris: dict[str, None] = {}
        self._group: TaskGroup | None = None
        self._scopes: list[anyio.CancelScope] = []
        """Of the requests that are open, the newest last."""
        self._acknowledged = anyio.Event()

    def listen_in(self, group: TaskGroup) -> None:
        """Listen in tasks of this group."""
        self._group = group

    def follow(self, capabilities: Mapping[str, Json]) -> None:
        """Listen for all that a server with these capabilities tells."""
        self._capabilities = capabilities
        self._renew()

    async def change(self, uri: str, seconds: float, *, wanted: bool) -> ToolResult:
        """Listen for a resource, or no longer, and wait until the server has heard that."""
        resources = self._capabilities.get("resources")
        if not isinstance(resources, dict) or resources.get("subscribe") is not True:
            return ToolResult(error={"code": _METHOD_NOT_FOUND, "message": "Method not found"})
        before = [*self._uris]
        if wanted:
            self._uris[uri] = None
        else:
            self._uris.pop(uri, None)
        if [*self._uris] != before and self._renew():
            with anyio.move_on_after(seconds):
                await self._acknowledged.wait()
        return ToolResult(result={})

    def note_acknowledged(self) -> None:
        """Note that the server listens to the newest request; end those before."""
        self._acknowledged.set()
        for scope in self._scopes[:-1]:
            scope.cancel()

    def _renew(self) -> bool:
        """Ask for what is wanted now. Return False if that is nothing."""
        wanted = wanted_news(self._capabilities, [*self._uris])
        self._acknowledged = anyio.Event()
        if not wanted or self._group is None:
            for scope in self._scopes:
                scope.cancel()
            return False
        scope = anyio.CancelScope()
        self._scopes.append(scope)
        self._group.start_soon(self._keep_listening, wanted, scope)
        return True

    async def _keep_listening(self, wanted: Mapping[str, Json], scope: anyio.CancelScope) -> None:
        pause = _FIRST_PAUSE
        try:
            with scope:
                while True:
                    began = anyio.current_time()
                    try:
                        answer = await self._listen(wanted)
                    except DownstreamError:
                        answer = ToolResult(result={})
                    if answer.error is not None:
                        return  # it knows no such request, or refuses this one
                    if anyio.current_time() - began > _LONGEST_PAUSE:
                        pause = _FIRST_PAUSE
                    await anyio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._scopes.remove(scope)
