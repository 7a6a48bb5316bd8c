"""The session log: what servers print and what is said about them.

Knows one file and how to write whole lines to it; does not know secrets: those are out before.
Nothing that goes wrong here stops anybody: a line that cannot be written is lost.
"""

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import Final

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
"""Not blocking: where the path is a pipe that nobody reads, there is no log, and nobody waits."""

# Control characters could move a terminal's cursor over what stands above; U+202A to U+202E and
# U+2066 to U+2069 turn the direction of text around; U+2028 and U+2029 are line ends to some.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class SessionLog:
    """An append-only text file, readable by its owner alone. Without a path it writes nothing."""

    fault: str = ""
    """Why there is no log though there is a path."""

    def __init__(self, path: Path | None = None) -> None:
        self._fd = -1
        self._closed = False
        self.path = path
        if path is not None:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._fd = os.open(path, _FLAGS, 0o600)
                if stat.S_ISREG(os.fstat(self._fd).st_mode):
                    os.fchmod(self._fd, 0o600)
            except (OSError, ValueError) as error:
                self.fault = f"cannot write to {path}: {error}"

    @property
    def is_open(self) -> bool:
        """Whether lines are kept."""
        return self._fd >= 0 and not self._closed

    def write(self, server: str, text: str) -> None:
        """Append the lines of a text, each with the server's name before it. Any thread may."""
        if not self.is_open:
            return
        name = printable(server).replace("\n", " ")
        lines = "".join([f"[{name}] {line}\n" for line in printable(text).split("\n")])
        # One call: lines of several threads do not mix. What a full disk does not take is lost.
        with contextlib.suppress(OSError):
            os.write(self._fd, lines.encode())

    def close(self) -> None:
        """Write no more."""
        self._closed = True

    def __del__(self) -> None:
        # Not in `close`: another thread may be about to write, and its lines must not end up in
        # the next file that gets the same descriptor, which may be the audit log.
        if self._fd >= 0:
            os.close(self._fd)


def printable(text: str) -> str:
    """The text with every control character but newline and tab written as its number."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004  one byte
