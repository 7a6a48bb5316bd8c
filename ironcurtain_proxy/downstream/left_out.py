"""Dropped notifications of one server: counted, and reported a few times a minute."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from ironcurtain_proxy.downstream.allowance import NotificationLimits, counted
from ironcurtain_proxy.downstream.session_log import SessionLog
from ironcurtain_proxy.model.json import Json

_LOGGER: Final = logging.getLogger(__name__)

_COLLECTED: Final = 0.5
_SAID_AGAIN: Final = 5.0
"""Seconds between two reports of dropped notifications, at first and later."""

_FEW: Final = frozenset({"error", "critical", "alert", "emergency"})
"""Log levels that exclude warnings."""


class LeftOut:
    """The dropped notifications of one server, across all its processes."""

    def __init__(
        self,
        server: str,
        log: SessionLog,
        pass_on: Callable[[Mapping[str, Json]], Awaitable[None]],
    ) -> None:
        """Begin without dropped notifications.

        Args:
            server: its name.
            log: the session log.
            pass_on: sends a log message to the agent.
        """
        self.notices = NotificationLimits()
        self.log_level: str | None = None
        """The agent's log level; None: it has set none."""
        self._server = server
        self._log = log
        self._pass_on = pass_on
        self._has_warned = False

    async def say(self) -> None:
        """Report dropped notifications to the agent, a few times a minute."""
        while True:
            await self.notices.until_some_are_left_out()
            await anyio.sleep(_COLLECTED)
            if (text := self.count()) and self.log_level not in _FEW:
                try:
                    await self._pass_on(
                        {"level": "warning", "logger": "ironcurtain-proxy", "data": text}
                    )
                except Exception as error:  # noqa: BLE001  the agent's trouble is not the server's
                    _LOGGER.debug("a count was not passed on (%s)", type(error).__name__)
            await anyio.sleep(_SAID_AGAIN)

    def count(self) -> str:
        """A text on the notifications dropped since the last report; the operator is told once."""
        number = self.notices.count()
        if not number:
            return ""
        text = (
            f'server "{self._server}" sends too many or too large notifications: '
            f"{counted(number, 'notification')} left out"
        )
        if self._has_warned:
            self._log.write(self._server, f"(proxy) {text}")
            return text
        self._has_warned = True
        warning = f"{text}, later ones are counted in the session log"
        _LOGGER.warning("%s", warning)
        self._log.write(self._server, f"(proxy) {warning}")
        return text
