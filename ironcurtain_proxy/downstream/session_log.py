"""The session log: the output of servers and notes about them, at a bounded rate and size.

Secrets are masked before. A line that cannot be written is lost, and no call is delayed. A full
file is renamed to `<name>.1` and replaces the previous one, so the two files bound the log. Several
objects and proxies may write to one file; each notices that another has renamed it.

A flood of notifications or output is cut to a steady rate and the excess counted, so that later
messages still pass.
"""

import contextlib
import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from ironcurtain_proxy.model.values import lazy

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
"""The flags of the log. It is opened without blocking: a pipe without a reader is no log."""

_MOST: Final = 32 << 20
"""Bytes of the file, and of the renamed one."""

# Control characters could move a terminal's cursor over what stands above; U+202A to U+202E and
# U+2066 to U+2069 turn the direction of text around; U+2028 and U+2029 are line ends to some.
_UNPRINTABLE: Final = lazy(
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
    """Return the text with every control character except newline and tab as an escape."""
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004  one byte


# --- allowance


_NOTICES: Final = 100.0
_NOTICES_AT_ONCE: Final = 1000.0
_NOTICE_BYTES: Final = 1 << 20
_NOTICE_BYTES_AT_ONCE: Final = 8 << 20
"""Bytes of notifications of one kind, each second and in a burst; larger ones never pass."""

_PRINTED: Final = 128 << 10
_PRINTED_AT_ONCE: Final = 4 << 20
"""Bytes of standard error, each second and in a burst."""

_MOST_PRINTED: Final = 32 << 20
"""Bytes kept of one server in a session, so that it cannot fill the audit log's disk."""


class Allowance:
    """A token bucket."""

    def __init__(
        self,
        rate: float,
        at_once: float,
        *,
        resume: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with a full bucket.

        Args:
            rate: the refill each second.
            at_once: the size of the bucket.
            resume: the refill that must follow a refusal before anything is taken again.
            clock: seconds.
        """
        self._rate = rate
        self._at_once = at_once
        self._resume = resume
        self._clock = clock
        self._left = at_once
        self._since = clock()
        self._needed = 0.0

    def has(self, amount: float) -> bool:
        """Return whether this amount may be taken now."""
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._since) * self._rate)
        self._since = now
        if self._left < max(amount, self._needed):
            self._needed = self._resume
            return False
        self._needed = 0.0
        return True

    def spend(self, amount: float) -> None:
        """Take this amount, even below zero."""
        self._left -= amount

    def take(self, amount: float) -> bool:
        """Take this amount, or nothing."""
        if not self.has(amount):
            return False
        self.spend(amount)
        return True


class NotificationLimits:
    """The notifications of one server, across all its processes."""

    def __init__(self) -> None:
        self._allowed: dict[str, tuple[Allowance, Allowance]] = {}
        self._left_out = 0
        self._some = anyio.Event()

    def admits(self, kind: str, size: int) -> bool:
        """Return whether one more passes.

        Each kind has its own limit, so that logs do not block progress.

        Args:
            kind: `progress` or `message`.
            size: bytes.
        """
        if kind not in self._allowed:
            number = Allowance(_NOTICES, _NOTICES_AT_ONCE)
            self._allowed[kind] = number, Allowance(_NOTICE_BYTES, _NOTICE_BYTES_AT_ONCE)
        number, volume = self._allowed[kind]
        if number.has(1) and volume.has(size):
            number.spend(1)
            volume.spend(size)
            return True
        self._left_out += 1
        self._some.set()
        return False

    async def until_some_are_left_out(self) -> None:
        """Wait for the first dropped notification since the last count."""
        await self._some.wait()

    def count(self) -> int:
        """Return the number dropped since the last count."""
        left_out, self._left_out = self._left_out, 0
        if self._some.is_set():
            self._some = anyio.Event()
        return left_out


class OutputLimit:
    """The output limit of one server, across all its processes. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._allowed = Allowance(_PRINTED, _PRINTED_AT_ONCE, resume=_PRINTED, clock=clock)
        self._most = _MOST_PRINTED
        self._kept = 0
        self._has_said_end = False
        self._left_out = 0

    def admit(self, size: int, lines: int) -> tuple[bool, str]:
        """Return whether this amount is kept, and a note to write before it."""
        with self._lock:
            if self._kept < self._most and self._allowed.has(size):
                return True, self._count()
            self._left_out += lines
            if self._kept < self._most or self._has_said_end:
                return False, ""
            self._has_said_end = True
            return False, f"(more than {self._most >> 20} MiB in this session: no more is kept)"

    def spend(self, size: int) -> None:
        """Count bytes that the server wrote."""
        with self._lock:
            self._kept += size
            self._allowed.spend(size)

    def finish(self) -> str:
        """Return a note for the end of a process, or empty if there is none."""
        with self._lock:
            return self._count()

    def _count(self) -> str:
        left_out, self._left_out = self._left_out, 0
        return f"({counted(left_out, 'line')} left out)" if left_out else ""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 line`, `2 lines`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
