"""A thread that drains a server's standard error into the session log.

A thread works before the event loop exists, and keeps floods of output and slow disks from delaying
calls.
"""

import os
import threading
from typing import Final

from ironcurtain_proxy.downstream.allowance import OutputLimit
from ironcurtain_proxy.downstream.masking import Masker
from ironcurtain_proxy.downstream.session_log import SessionLog, printable

_CHUNK: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 14
"""Bytes after which a line is split: a server may never write a newline."""

_LONGEST_WORDS: Final = 200
"""Characters of a server's last line that are repeated to the operator."""


class StderrDrain:
    """Reads until the server and all it has started have closed their standard error."""

    def __init__(
        self, server: str, fd: int, masker: Masker, log: SessionLog, ration: OutputLimit
    ) -> None:
        self._server = server
        self._fd = fd
        self._masker = masker
        self._log = log
        self._line = b""
        self._ration = ration
        self._last = b""
        self._thread = threading.Thread(target=self._run, name=f"stderr of {server}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the end of the stream, at most this long."""
        self._thread.join(seconds)

    @property
    def last_words(self) -> str:
        """The last line that is not blank, masked, printable and short; empty if there is none."""
        text = printable(self._last.decode("utf-8", "backslashreplace")).replace("\t", " ").strip()
        return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]}…"

    def _run(self) -> None:
        try:
            while data := self._read():
                self._take(self._masker.feed(data))
            self._take(self._masker.finish())
            if self._line:
                self._write(self._line)
            self._say(self._ration.finish())
        finally:
            os.close(self._fd)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _CHUNK)
        except OSError:
            return b""

    def _take(self, data: bytes) -> None:
        whole, newline, rest = data.rpartition(b"\n")
        if newline:
            self._write(self._line + whole)
            self._line = rest
        else:
            self._line += rest
        if len(self._line) > _LONGEST_LINE:
            self._write(self._line)
            self._line = b""

    def _write(self, data: bytes) -> None:
        said = data.rstrip()
        if said:
            self._last = said[said.rfind(b"\n") + 1 :][:_LONGEST_LINE]
        if not self._log.is_open:
            return
        is_kept, note = self._ration.admit(len(data), data.count(b"\n") + 1)
        self._say(note)
        if is_kept:
            text = data.decode("utf-8", "backslashreplace")
            # The written bytes, which are more: each line has a name, and escapes are longer.
            text = text.replace("\r\n", "\n").removesuffix("\r")
            self._ration.spend(self._log.write(self._server, text))

    def _say(self, note: str) -> None:
        if note:
            self._log.write(self._server, note)
