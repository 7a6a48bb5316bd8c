"""Notes on invalid messages of a server, in the session log and at a limited rate."""

import time
from typing import Final

from ironcurtain_proxy.downstream.masking import Masker
from ironcurtain_proxy.downstream.session_log import SessionLog

_PERIOD: Final = 60.0
"""Seconds."""

_NOTES: Final = 20
"""The most notes in one period."""

_LOOKED_AT: Final = 4096
_SHOWN: Final = 200


class UnusableMessages:
    """Notes about one server."""

    def __init__(self, server: str, secrets: tuple[str, ...], log: SessionLog) -> None:
        self._server = server
        self._secrets = secrets
        self._log = log
        self._since = float("-inf")
        self._notes = 0

    def note(self, what: str, line: bytes = b"") -> None:
        """Note that a message was dropped, with its beginning."""
        now = time.monotonic()
        if now - self._since > _PERIOD:
            self._say(f"({self._notes - _NOTES} more notes like these)", self._notes > _NOTES)
            self._since, self._notes = now, 0
        self._notes += 1
        if self._notes <= _NOTES and self._log.is_open:
            # A secret cut short by the limit is held back by the masker, and so not shown.
            shown = Masker(self._secrets).feed(line[:_LOOKED_AT])[:_SHOWN]
            text = shown.decode("utf-8", "backslashreplace").replace("\n", " ")
            self._log.write(self._server, f"(proxy) {what}: {text}" if text else f"(proxy) {what}")

    def _say(self, text: str, wanted: bool) -> None:  # noqa: FBT001  private
        if wanted:
            self._log.write(self._server, f"(proxy) {text}")
