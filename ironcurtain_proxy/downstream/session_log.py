"""The session log: the output of servers, and notes about them.

Secrets are masked before. A line that cannot be written is lost, and no call is delayed. A full
file is renamed to `<name>.1` and replaces the previous one, so the two files bound the log. Several
objects and proxies may write to one file; each notices that another has renamed it.
"""

import contextlib
import fcntl
import os
import re
import stat
import threading
from pathlib import Path
from typing import Final

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
"""The flags of the log. It is opened without blocking: a pipe without a reader is no log."""

_MOST: Final = 32 << 20
"""Bytes of the file, and of the renamed one."""

# Control characters could move a terminal's cursor over what stands above; U+202A to U+202E and
# U+2066 to U+2069 turn the direction of text around; U+2028 and U+2029 are line ends to some.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class SessionLog:
    """An append-only text file, readable by its owner alone. Without a path it writes nothing."""

    fault: str = ""
    """The reason why there is no log although there is a path."""

    def __init__(self, path: Path | None = None) -> None:
        self._fd = -1
        self._closed = False
        self._lock = threading.Lock()
        self._left_out = 0
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

    def write(self, server: str, text: str) -> int:
        """Append the lines of a text, each with the server's name before it. Any thread may.

        Returns:
            How many bytes they are in the log.
        """
        if not self.is_open:
            return 0
        name = printable(server).replace("\n", " ")
        return self._append([f"[{name}] {line}\n" for line in printable(text).split("\n")])

    def append(self, text: str) -> None:
        """Append the lines of a text. Thread-safe."""
        self._append([f"{line}\n" for line in printable(text).split("\n")])

    def _append(self, lines: list[str]) -> int:
        data = "".join(lines).encode()
        # Lines are lost on a full disk.
        with self._lock, contextlib.suppress(OSError):
            if not self.is_open:
                return 0
            if self._is_full(len(data)):
                self._set_aside()
            if self._is_full(len(data)):
                self._left_out += len(lines)
                return 0
            if self._left_out:
                data = f"({self._left_out} lines left out: the log was full)\n".encode() + data
            # One call: lines of several processes do not mix.
            os.write(self._fd, data)
            self._left_out = 0
        return len(data)

    def _is_full(self, more: int) -> bool:
        found = os.fstat(self._fd)
        # A text larger than the limit gets a new file.
        return stat.S_ISREG(found.st_mode) and 0 < found.st_size > _MOST - more

    def _set_aside(self) -> None:
        """Begin a new file; on failure, the old one stays full."""
        path = self.path
        if path is None or path.is_symlink():
            # A link may lead to a directory where others could read the renamed file.
            return
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                # Otherwise another process has done it already.
                if os.path.samestat(path.lstat(), os.fstat(self._fd)):
                    path.replace(path.with_name(f"{path.name}.1"))
            full, self._fd = self._fd, os.open(path, _FLAGS, 0o600)
            os.close(full)

    def close(self) -> None:
        """Stop writing."""
        self._closed = True

    def __del__(self) -> None:
        # Not in `close`: another thread may be about to write, and its lines must not end up in
        # the next file that gets the same descriptor, which may be the audit log.
        if self._fd >= 0:
            os.close(self._fd)


def printable(text: str) -> str:
    """The text with every control character except newline and tab as an escape."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004  one byte
