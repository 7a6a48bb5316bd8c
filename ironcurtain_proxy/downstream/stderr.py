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


_LOOKED_AT: Final = 50
"""The last lines of a piece of output that are searched for an error: a server may print without
end."""
_TELLING: Final = (
    *(b"Error:", b"rror: ", b"Exception:", b"ERROR", b"atal", b"panic:", b"annot ", b"ould not "),
    *(b"ailed to ", b"o such ", b"ot found", b"issing ", b"equired"),
)
"""Parts of lines that say what went wrong."""


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
        self._telling = b""
        self._thread = threading.Thread(target=self._run, name=f"stderr of {server}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the end of the stream, at most this long."""
        self._thread.join(seconds)

    @property
    def last_words(self) -> str:
        """The last line that tells an error, else the last one; masked, printable and short.

        Empty if there is none. After its error, Node.js prints where it stood and its version.
        """
        line = self._telling or self._last
        text = printable(line.decode("utf-8", "backslashreplace")).replace("\t", " ").strip()
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
            for line in reversed(said.splitlines()[-_LOOKED_AT:]):
                # A line of a stack says only where.
                if not line.lstrip().startswith(b"at ") and any(one in line for one in _TELLING):
                    self._telling = line[:_LONGEST_LINE]
                    break
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
