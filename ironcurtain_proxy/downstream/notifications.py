"""What one server says unasked: listened to, matched with its call, noted where it is unusable.

A server without a handshake tells its news to one request that stays open:

    follow(), change() ──▶ subscriptions/listen ──▶ acknowledged ──▶ news, until the server ends it
                                 ▲                                              │
                                 └── after a pause, or when something else is wanted

The request before is ended only when its server has acknowledged the next one, so that no news is
lost between the two. A resource that is not acknowledged is not subscribed to.

A token tells whose progress a server reports. Messages that cannot be used are noted in the session
log, and notifications beyond the rate are counted and reported, a few times a minute.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from ironcurtain_proxy.downstream.environment import Masker
from ironcurtain_proxy.downstream.eras import METHOD_NOT_FOUND, wanted_news
from ironcurtain_proxy.downstream.session_log import (
    NotificationLimits,
    SessionLog,
    counted,
    printable,
)
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.jsonrpc.codec import INVALID_PARAMS, value_at
from ironcurtain_proxy.model.operation import SUBSCRIPTION_KEY
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, list_of

# --- subscriptions


_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
"""Seconds before a server is listened to again."""


class _Listening:
    """One request that stays open."""

    def __init__(self, wanted: Mapping[str, Json]) -> None:
        self.wanted = wanted
        self.id: int | None = None
        self.scope = anyio.CancelScope()
        self.is_settled = anyio.Event()
        """Set when its server has acknowledged or refused it, or it has ended."""
        self.granted: frozenset[Json] | None = None
        """The resources that its server tells of; None: it has not said which."""
        self.refusal: Mapping[str, Json] | None = None
        self.is_heard = self.was_heard = False
        """Whether its server has acknowledged it, and whether an earlier one of the same."""

    def note_id(self, number: int) -> None:
        """Note the id under which it is sent, perhaps once more."""
        self.id = number
        self.was_heard, self.is_heard = self.is_heard, False

    def why_not(self, uri: str) -> Mapping[str, Json] | None:
        """Return the error if its server does not tell of a resource."""
        if self.granted is None or uri in self.granted:
            return self.refusal
        return {"code": INVALID_PARAMS, "message": "the server does not tell of this resource"}


class ServerSubscriptions(Struct, eq=False):
    """What one server is listened to for."""

    listen: Callable[[Mapping[str, Json], Callable[[int], None]], Awaitable[ToolResult]]
    """Sends a request for what is wanted, and notes its id."""
    _capabilities: Mapping[str, Json] = field(default_factory=dict)
    _uris: dict[str, None] = field(default_factory=dict)
    _group: TaskGroup | None = None
    _open: list[_Listening] = field(default_factory=list)
    """The newest last."""

    def listen_in(self, group: TaskGroup | None) -> None:
        """Listen in tasks of this group. None: the server has gone, and has no subscriptions."""
        self._group = group

    def follow(self, capabilities: Mapping[str, Json]) -> None:
        """Listen for all that a server with these capabilities tells."""
        self._capabilities = capabilities
        self._renew()

    async def change(self, uri: str, seconds: float, *, wanted: bool) -> ToolResult:
        """Listen for a resource, or no longer, and wait until the server has heard that."""
        can = value_at(self._capabilities, "resources", "subscribe") is True
        if not can or self._group is None:
            return ToolResult(error={"code": METHOD_NOT_FOUND, "message": "Method not found"})
        if wanted == (uri in self._uris):
            return ToolResult(result={})
        if wanted:
            self._uris[uri] = None
        else:
            del self._uris[uri]
        one = self._renew()
        if one is not None:
            with anyio.move_on_after(seconds):
                await one.is_settled.wait()
            if wanted and (error := one.why_not(uri)) is not None:
                self._uris.pop(uri, None)
                return ToolResult(error=error)
        return ToolResult(result={})

    def note_acknowledged(self, params: Mapping[str, Json]) -> bool:
        """Note what the server grants to a request; end those before.

        Returns:
            True: the same was listened for before, and nobody has listened since.
        """
        number = value_at(params, "_meta", SUBSCRIPTION_KEY)
        for at, one in enumerate(self._open):
            if one.id == number and not one.is_heard:
                one.is_heard = True
                texts = list_of(value_at(params, "notifications", "resourceSubscriptions"))
                one.granted = frozenset([uri for uri in texts if isinstance(uri, str)])
                one.is_settled.set()
                for old in self._open[:at]:
                    old.granted = one.granted if old.granted is None else old.granted
                    old.scope.cancel()
                return one.was_heard
        return False

    def _renew(self) -> _Listening | None:
        """Ask for what is wanted now, or return None if that is nothing."""
        wanted = wanted_news(self._capabilities, [*self._uris])
        if not wanted or self._group is None:
            for one in self._open:
                one.scope.cancel()
            return None
        one = _Listening(wanted)
        self._open.append(one)
        self._group.start_soon(self._keep_listening, one)
        return one

    async def _keep_listening(self, one: _Listening) -> None:
        pause = _FIRST_PAUSE
        try:
            with one.scope:
                while True:
                    began = anyio.current_time()
                    try:
                        answer = await self.listen(one.wanted, one.note_id)
                    except DownstreamError:
                        answer = ToolResult(result={})
                    if answer.error is not None:
                        one.refusal = answer.error
                        return  # it knows no such request, or refuses this one
                    if anyio.current_time() - began > _LONGEST_PAUSE:
                        pause = _FIRST_PAUSE
                    await anyio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._open.remove(one)
            one.is_settled.set()


# --- progress tokens


TokenKey: TypeAlias = tuple[type, str | int | float]
"""A token, so that 1, 1.0 and "1" are three."""


def token_of(params: Mapping[str, Json]) -> TokenKey | None:
    """Return the token of a call, or None if it has none."""
    meta = params.get("_meta")
    return token_key(meta.get("progressToken")) if isinstance(meta, dict) else None


def token_key(token: Json) -> TokenKey | None:
    """Return the key of a token, or None if it cannot be one."""
    if isinstance(token, bool) or not isinstance(token, str | int | float):
        return None
    return type(token), token


# --- unusable messages


_PERIOD: Final = 60.0
"""Seconds."""

_NOTES: Final = 20
"""The most notes in one period."""

_LOOKED_AT: Final = 4096
_SHOWN: Final = 200


class UnusableMessages:
    """Notes about one server."""

    def __init__(self, server: str, secrets: tuple[str, ...], log: SessionLog) -> None:
        self.server = server
        self._secrets = secrets
        self._log = log
        self._since = float("-inf")
        self._notes = 0
        self._printed = ""
        self.lines_printed = 0
        """The lines that were no messages, in the life of the process."""

    def forget_printed(self) -> None:
        """Begin anew: another process has been started."""
        self._printed, self.lines_printed = "", 0

    def note_printed(self, line: bytes) -> None:
        """Keep a line on standard output that is no message, for whoever waits for one."""
        self.lines_printed += 1
        if self.lines_printed <= _NOTES:
            self._printed = self._shown(line)

    @property
    def printed(self) -> str:
        """What was printed instead of a message, as a clause for the operator, or nothing."""
        if not self._printed:
            return ""
        framing = (
            ", which frames messages for editors, while MCP puts each on a line"
            if self._printed.lower().startswith("content-length:")
            else ""
        )
        return f'; to standard output, where messages belong, it printed "{self._printed}"{framing}'

    def _shown(self, line: bytes) -> str:
        # A secret cut short by the limit is held back by the masker, and so not shown.
        shown = Masker(self._secrets).feed(line[:_LOOKED_AT])[:_SHOWN]
        return printable(shown.decode("utf-8", "backslashreplace")).replace("\t", " ").strip()

    def note(self, what: str, line: bytes = b"") -> None:
        """Note that a message was dropped, with its beginning."""
        now = time.monotonic()
        if now - self._since > _PERIOD:
            if self._notes > _NOTES:
                more = f"({self._notes - _NOTES} more notes like these)"
                self._log.write(self.server, f"(proxy) {more}")
            self._since, self._notes = now, 0
        self._notes += 1
        if self._notes <= _NOTES and self._log.is_open:
            text = self._shown(line)
            self._log.write(self.server, f"(proxy) {what}: {text}" if text else f"(proxy) {what}")


# --- left out


_LOGGER: Final = logging.getLogger(__name__)

_COLLECTED: Final = 0.5
_SAID_AGAIN: Final = 5.0
"""Seconds between two reports of dropped notifications, at first and later."""

_FEW: Final = frozenset({"error", "critical", "alert", "emergency"})
"""Log levels that exclude warnings."""


class LeftOut(Struct, eq=False):
    """The dropped notifications of one server, across all its processes."""

    server: str
    """Its name."""
    log: SessionLog
    """The session log."""
    pass_on: Callable[[Mapping[str, Json]], Awaitable[None]]
    """Sends a log message to the agent."""
    notices: NotificationLimits = field(default_factory=NotificationLimits)
    log_level: str | None = None
    """The agent's log level, or None if it has set none."""
    _has_warned: bool = False

    async def say(self) -> None:
        """Report dropped notifications to the agent, a few times a minute."""
        while True:
            await self.notices.until_some_are_left_out()
            await anyio.sleep(_COLLECTED)
            if (text := self.count()) and self.log_level not in _FEW:
                try:
                    await self.pass_on(
                        {"level": "warning", "logger": "ironcurtain-proxy", "data": text}
                    )
                except Exception as error:  # noqa: BLE001  the agent's trouble is not the server's
                    _LOGGER.debug("a count was not passed on (%s)", type(error).__name__)
            await anyio.sleep(_SAID_AGAIN)

    def count(self) -> str:
        """Return a text on the notifications dropped since the last report.

        The operator is told once.
        """
        number = self.notices.count()
        if not number:
            return ""
        text = (
            f'server "{self.server}" sends too many or too large notifications: '
            f"{counted(number, 'notification')} left out"
        )
        if self._has_warned:
            self.log.write(self.server, f"(proxy) {text}")
            return text
        self._has_warned = True
        warning = f"{text}, later ones are counted in the session log"
        _LOGGER.warning("%s", warning)
        self.log.write(self.server, f"(proxy) {warning}")
        return text
