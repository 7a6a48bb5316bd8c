"""Lines in and out of pipes: one pass over the bytes, bounded memory, no thread and no task.

A pipe is read into a queue of lines. While the queue is full, the pipe is not read, so that the
writer at its other end has to wait. A line longer than the limit is dropped as it arrives, except
for its two ends, which may hold the id of the message.

asyncio waits for pipes and sockets only. It refuses files, fails late on `/dev/null`, and makes a
terminal non-blocking for its shell, too. A thread reads these through a pipe, and plain blocking
writes write them. A conversation sees a `LineSource` and a `LineSink`, be it pipes or HTTP.
"""

import asyncio  # noqa: TID251  pipe transports
import contextlib
import fcntl
import os
import stat
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, Self

from msgspec import Struct

from ironcurtain_proxy.jsonrpc.codec import MessageId
from ironcurtain_proxy.jsonrpc.sending import Batch, LineWriter

# --- channels


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


# --- pipes


MAX_LINE: Final = 64 << 20
"""The default limit of one line, bytes."""

_EDGE: Final = 4096
_QUEUED_LINES: Final = 256
_QUEUED_BYTES: Final = 8 << 20
_PIPE_SIZE: Final = 1 << 20
_LARGE_PART: Final = 1 << 14
_READ_SIZE: Final = 1 << 16
"""Bytes of a read. A larger buffer is mapped and unmapped at each read: 20 µs a message."""
_LARGE_READ_SIZE: Final = 1 << 18
"""Bytes of a read within a large line, where fewer reads save more than the mapping costs."""
_LARGE_LINE: Final = 1 << 18


_NO_BATCH: Final = contextlib.nullcontext()


class Oversize(Struct, frozen=True):
    """The ends of a line longer than the limit."""

    head: bytes
    """The first bytes of the line, at most 4 KiB."""
    tail: bytes
    """The last bytes of the line, at most 4 KiB."""
    size: int
    """Bytes of the whole line."""


class LineReader(asyncio.Protocol):
    """The lines that arrive through one pipe, without newlines and empty lines.

    Made by `open_reader`. One task at a time may wait in `receive`.
    """

    def __init__(self, max_line: int, batch: Batch | None = None) -> None:
        self._max_line = max_line
        self._batch = batch or _NO_BATCH
        self._transport: asyncio.ReadTransport | None = None
        self._lines: deque[bytes | Oversize] = deque()
        self._queued_bytes = 0
        self._parts: list[bytes] = []
        self._partial = bytearray()
        self._size = 0
        self._oversize: _Edges | None = None
        self._reads_much = False
        self._paused = False
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        self._taker: Callable[[bytes], bool] | None = None

    def offer_to(self, taker: Callable[[bytes], bool]) -> None:
        """Offer each line to a function, which takes or refuses it, before it is queued.

        Saves a turn of the event loop for each line. Lines are offered only while `receive` waits
        and the queue is empty, so the order stays.
        """
        self._taker = taker

    async def receive(self) -> bytes | Oversize | None:
        """Return the next line, or None once the pipe is closed and no line is left."""
        while not self._lines:
            if self._ended:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        line = self._lines.popleft()
        self._queued_bytes -= len(line) if isinstance(line, bytes) else 0
        if self._paused and not self._is_full():
            self._paused = False
            if self._transport is not None:
                self._transport.resume_reading()
        return line

    def close(self) -> None:
        """Stop reading. Lines that have arrived can still be received."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the pipe. Called by the event loop."""
        if not isinstance(transport, asyncio.ReadTransport):
            raise TypeError("a LineReader reads")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take bytes that have arrived. Called by the event loop."""
        if self._reads_much and data.find(b"\n") < 0:
            # To split is ten times slower than to search.
            self._begin_line(data)
            return
        begun = self._size or self._oversize is not None
        if not begun and data.find(b"\n") == len(data) - 1:
            self._put(data[:-1])  # nearly every read
        elif begun or not data.isspace():
            # Blank lines without end are not split: it would take the time of all others.
            lines = data.split(b"\n")
            with self._batch if lines[1:-1] else _NO_BATCH:
                self._take(lines)
        if self._transport is not None and self._is_full() and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Note that the other side has closed; a last line may lack its newline.

        Called by the event loop.
        """
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        """Note the end of the pipe. Called by the event loop."""
        self._transport = None
        self._end()

    def _take(self, lines: list[bytes]) -> None:
        if len(lines) > 1:
            if self._size or self._oversize is not None:
                self._finish_line(lines[0])
            else:
                self._put(lines[0])
            for line in filter(None, lines[1:-1]):
                self._put(line)
        if lines[-1]:
            self._begin_line(lines[-1])

    def _begin_line(self, part: bytes) -> None:
        if self._oversize is not None:
            self._oversize.add(part)
            return
        self._size += len(part)
        if self._size > _LARGE_LINE and not self._reads_much:
            self._read_much(is_large=True)
        # Large parts are joined once. Small ones go into a bytearray: a line sent byte by byte must
        # not cost 40 times its size.
        if len(part) >= _LARGE_PART:
            self._end_partial()
            self._parts.append(part)
        else:
            self._partial += part
        if self._size > self._max_line:
            self._oversize = _Edges()
            for taken in self._parts:
                self._oversize.add(taken)
            self._oversize.add(self._partial)
            self._forget_parts()

    def _read_much(self, *, is_large: bool) -> None:
        self._reads_much = is_large
        if self._transport is not None:
            set_read_size(self._transport, _LARGE_READ_SIZE if is_large else _READ_SIZE)

    def _end_partial(self) -> None:
        if self._partial:
            self._parts.append(bytes(self._partial))
            self._partial = bytearray()

    def _forget_parts(self) -> None:
        self._parts, self._partial, self._size = [], bytearray(), 0

    def _finish_line(self, part: bytes) -> None:
        """End the line that earlier reads began."""
        self._begin_line(part)
        self._end_partial()
        line = b"".join(self._parts)
        self._forget_parts()
        if self._reads_much:
            self._read_much(is_large=False)
        if self._oversize is None:
            self._put(line)
        else:
            self._lines.append(self._oversize.line())
            self._oversize = None

    def _put(self, line: bytes) -> None:
        taker, waiter = self._taker, self._waiter
        if len(line) > self._max_line:
            self._lines.append(_Edges().add(line).line())
        elif line and not line.isspace():
            if taker and waiter and not (self._lines or waiter.done()) and taker(line):
                return
            self._lines.append(line)
            self._queued_bytes += len(line)

    def _is_full(self) -> bool:
        return len(self._lines) >= _QUEUED_LINES or self._queued_bytes >= _QUEUED_BYTES

    def _end(self) -> None:
        if not self._ended:
            self._finish_line(b"")
            self._ended = True
            self._wake()

    def _wake(self) -> None:
        if (self._lines or self._ended) and self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


class _Edges:
    """The two ends of a line that is being dropped."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = bytearray()
        self._size = 0

    def add(self, part: bytes | bytearray) -> Self:
        self._size += len(part)
        self._head += part[: _EDGE - len(self._head)]
        self._tail += part[-_EDGE:]
        del self._tail[:-_EDGE]
        return self

    def line(self) -> Oversize:
        return Oversize(self._head, bytes(self._tail), self._size)


async def open_reader(
    fd: int, *, max_line: int = MAX_LINE, batch: Batch | None = None
) -> LineReader:
    """Read lines from a descriptor, which the reader then owns.

    The event loop reads pipes and sockets; a thread reads files, terminals and `/dev/null`.

    Args:
        fd: the descriptor.
        max_line: the limit of one line, bytes.
        batch: gets the lines of each read.
    """
    widen(fd)
    reader = LineReader(max_line, batch)
    await open_read_channel(fd, reader, _READ_SIZE)
    return reader


async def open_wire(
    read: int, write: int, *, max_line: int = MAX_LINE, batch: Batch | None = None
) -> tuple[LineReader, LineWriter]:
    """Open both directions. If one fails, both are closed."""
    try:
        reader = await open_reader(read, max_line=max_line, batch=batch)
    except BaseException:
        os.close(write)
        raise
    try:
        return reader, await open_writer(write, batch=batch)
    except BaseException:
        reader.close()
        raise


async def open_writer(fd: int, *, batch: Batch | None = None) -> LineWriter:
    """Send lines to a descriptor, which the writer then owns. See `open_reader`."""
    widen(fd)
    writer = LineWriter(batch)
    await open_write_channel(fd, writer)
    return writer


def widen(fd: int) -> None:
    """Enlarge a pipe to 1 MiB where the system allows it: fewer wake-ups for large messages."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


# --- wire


class Lost(Struct, frozen=True):
    """A request that gets no answer although the conversation continues."""

    id: MessageId
    error: Exception


STREAM_ENDED: Final = "notifications/ironcurtain/stream_ended"
"""The notification with which the proxy tells its front that a server ended the stream of a call
before the answer: its client is to ask for the rest. A front that reads it says so by the same
method. It leaves the two of them never."""


UNREAD: Final = "notifications/ironcurtain/unread"
"""The notification with which our front tells the proxy that it refused a message of the agent's,
which the proxy records. `why` says what was wrong with it."""


OF_REQUEST: Final = "ironcurtain/request"
"""The key with which the proxy tells its front to which request a notification belongs. The front
takes it out."""


class StreamEnded(Struct, frozen=True):
    """A server over HTTP ended a stream."""

    of_call: bool
    """Whether it is that of a call before its answer, which is to be asked for. Else it is that of
    no request, which is read again: what was said meanwhile is lost."""


class LineSource(Protocol):
    """The source of arriving lines. One task at a time may wait in `receive`."""

    def offer_to(self, taker: Callable[[bytes], bool]) -> None:
        """Offer each line to a function, which takes or refuses it, before it is queued."""

    async def receive(self) -> bytes | Oversize | Lost | StreamEnded | None:
        """Return the next line, or None when no more can come."""

    def close(self) -> None:
        """Stop receiving."""


class LineSink(Protocol):
    """The sink of outgoing lines."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""

    @property
    def backlog(self) -> int:
        """Bytes accepted and not yet taken by the other side."""

    def write(self, line: bytes) -> None:
        """Accept a line (with its newline) without waiting; raises `BrokenPipeError`."""

    def abort(self) -> None:
        """Close now; lines that were accepted and not sent are lost."""
