"""A thread that drains a server's standard error into the session log.

A thread works before the event loop exists, and keeps floods of output and slow disks from delaying
calls.
"""

import os
import re
import threading
from typing import Final

from ironcurtain_proxy.downstream.allowance import OutputLimit
from ironcurtain_proxy.downstream.masking import Masker
from ironcurtain_proxy.downstream.session_log import SessionLog, printable

_CHUNK: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 14
"""Bytes after which a line is split: a server may never write a newline."""

_KEPT: Final = 8192
"""Bytes of the end of the output in which the most telling line is looked for."""

_NAMES_ERROR: Final = re.compile(
    rb"\s*(?:Uncaught |Caused by: |thread '[^']*' )?"
    rb"(?:[\w.]*(?:Error|Exception)\b[^:]{0,40}:|(?:fatal|panic|error|failed)\w*[:! ]"
    rb"|panicked|cannot )",
    re.IGNORECASE,
)
"""Lines such as `Error: ENOENT: …`, `ModuleNotFoundError: …` and `fatal: …`."""

_SPEAKS_OF_ERROR: Final = re.compile(
    rb"\b(?:errors?|cannot|can't|could not|failed|denied|refused|not found|missing|required"
    rb"|E[A-Z]{4,})\b",
    re.IGNORECASE,
)

_LONGEST_WORDS: Final = 200
"""Characters of a server's line that are repeated to the operator."""


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
        self._tail = b""
        self._thread = threading.Thread(target=self._run, name=f"stderr of {server}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the end of the stream, at most this long."""
        self._thread.join(seconds)

    @property
    def last_words(self) -> str:
        """The line that tells most, masked, printable and short; empty if there is none.

        The last line that names an error, else the last that is not blank: Node.js ends with its
        version, and others with advice.
        """
        lines = [line for line in self._tail.split(b"\n") if line.strip()]
        telling = [line for line in lines if _NAMES_ERROR.match(line)]
        telling = telling or [line for line in lines if _SPEAKS_OF_ERROR.search(line)]
        best = (telling or lines or [b""])[-1]
        text = (
            printable(best.strip().decode("utf-8", "backslashreplace")).replace("\t", " ").strip()
        )
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
        self._tail = (self._tail + data[-_KEPT:] + b"\n")[-_KEPT:]
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
