"""Descriptors of each kind, opened for the event loop.

asyncio waits for pipes and sockets only. It refuses files, fails late on `/dev/null`, and makes a
terminal non-blocking for its shell, too. A thread reads these through a pipe, and plain blocking
writes write them.
"""

import asyncio  # noqa: TID251  pipe transports
import contextlib
import fcntl
import os
import stat
import threading
from typing import Final

_CHUNK: Final = 1 << 16
_STDERR: Final = 2


async def open_read_channel(fd: int, protocol: asyncio.Protocol, read_size: int) -> None:
    """Read a descriptor for a protocol, which becomes its owner."""
    if not _can_be_awaited(fd):
        fd = _pump(fd)
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(fd, "rb", 0)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
    set_read_size(transport, read_size)


def set_read_size(transport: asyncio.ReadTransport, size: int) -> None:
    """Set the most bytes of one read, for which asyncio has no setting."""
    transport.max_size = size  # type: ignore[attr-defined]


async def open_write_channel(fd: int, protocol: asyncio.Protocol) -> None:
    """Give a protocol a transport that writes to a descriptor and owns it."""
    if _can_be_awaited(fd):
        loop = asyncio.get_running_loop()
        await loop.connect_write_pipe(lambda: protocol, os.fdopen(fd, "wb", 0))
    else:
        protocol.connection_made(_FileTransport(fd, protocol))


def _can_be_awaited(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _pump(source: int) -> int:
    """Start a thread that copies a descriptor into a pipe. Returns the pipe's read end."""
    read, write = os.pipe()

    def copy() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(source, _CHUNK):
                view = memoryview(data)
                while view:
                    view = view[os.write(write, view) :]
        os.close(write)
        os.close(source)

    threading.Thread(target=copy, name="stdin", daemon=True).start()
    return read


def claim_stdio() -> tuple[int, int]:
    """Move the connection off descriptors 0 and 1; returns its new (read, write) descriptors.

    A stray `print`, library or child process then writes to standard error instead of standard
    output, and reads an empty standard input. The new descriptors are not inherited.

    Raises:
        OSError: standard input or output is closed.
    """
    read, write = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(_STDERR, 1)
    except OSError:
        os.dup2(null, 1)
    if null != _STDERR:
        os.close(null)
    return read, write


class _FileTransport(asyncio.WriteTransport):
    """Writes at once, and blocks for the file if it must."""

    def __init__(self, fd: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._fd = fd
        self._protocol = protocol
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self.close()

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            os.close(self._fd)
            self._protocol.connection_lost(None)

    def abort(self) -> None:
        self.close()
