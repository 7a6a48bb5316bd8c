"""What kind of descriptor it is, and how the event loop gets at it.

Knows files, pipes and terminals; does not know lines.

asyncio can wait for pipes and sockets only. It refuses files, fails late on `/dev/null`, and makes
a terminal non-blocking for the shell that owns it as well. These are read by a thread through a
pipe, and written with plain blocking writes.
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
    """Let a protocol be told of all bytes that can be read from a descriptor, now its own."""
    if not _can_be_awaited(fd):
        fd = _pump(fd)
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(fd, "rb", 0)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
    set_read_size(transport, read_size)


def set_read_size(transport: asyncio.ReadTransport, size: int) -> None:
    """How many bytes one read takes at most. asyncio has no setting for it."""
    transport.max_size = size  # type: ignore[attr-defined]


async def open_write_channel(fd: int, protocol: asyncio.Protocol) -> None:
    """Give a protocol a transport that writes to a descriptor, now its own."""
    if _can_be_awaited(fd):
        loop = asyncio.get_running_loop()
        await loop.connect_write_pipe(lambda: protocol, os.fdopen(fd, "wb", 0))
    else:
        protocol.connection_made(_FileTransport(fd, protocol))


def _can_be_awaited(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _pump(source: int) -> int:
    """Copy a descriptor into a pipe, by a thread that ends with either. The pipe's read end."""
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
    """Move the wire off descriptors 0 and 1, and give back where it is now: (read, write).

    From then on a stray `print`, a library or a child process that writes to standard output writes
    to standard error, and finds standard input empty. The new descriptors are not inherited.

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
    """Writes at once, and waits for the file if it must."""

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
