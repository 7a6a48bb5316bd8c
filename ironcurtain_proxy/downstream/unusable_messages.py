"""Notes on invalid messages of a server, in the session log and at a limited rate."""

import time
from typing import Final

from ironcurtain_proxy.downstream.masking import Masker
from ironcurtain_proxy.downstream.session_log import SessionLog, printable

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
            self._say(f"({self._notes - _NOTES} more notes like these)", self._notes > _NOTES)
            self._since, self._notes = now, 0
        self._notes += 1
        if self._notes <= _NOTES and self._log.is_open:
            text = self._shown(line)
            self._log.write(self.server, f"(proxy) {what}: {text}" if text else f"(proxy) {what}")

    def _say(self, text: str, wanted: bool) -> None:  # noqa: FBT001  private
        if wanted:
            self._log.write(self.server, f"(proxy) {text}")
