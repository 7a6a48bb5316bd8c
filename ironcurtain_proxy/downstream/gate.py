"""The network proxy of a sandbox without network: refuses every host, and records it.

It never connects anywhere. Without it, only error messages would name the refused hosts, and many
clients omit the host.
"""

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import SocketStream
from msgspec import Struct, field

_MOST_HOSTS: Final = 256
_MOST_BYTES: Final = 8192
_PATIENCE: Final = 5.0
"""Seconds for a client's request."""
_PAUSE: Final = 0.05
_AT_ONCE: Final = 32
_REQUEST: Final = re.compile(
    rb"[A-Z]{1,20} (?:[a-z][a-z0-9+.-]{0,20}://)?(?:[^/@\s]{0,256}@)?"
    rb"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])[:/ ?]"
)
_REFUSAL: Final = (
    b"HTTP/1.1 403 host is not on the allow list\r\nContent-Type: text/plain\r\n"
    b"X-Proxy-Error: blocked-by-allowlist\r\nConnection: close\r\n\r\n"
    b"Connection blocked by network allowlist\n"
)
_SOCKS: Final = 5
_NO_AUTHENTICATION: Final = b"\x05\x00"
_NOT_ALLOWED: Final = b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"
_IPV4, _NAME = 1, 3


class Gate(Struct, eq=False):
    """The gate of one server. Connections before `run` wait."""

    listener: socket.socket
    _seen: dict[str, int] = field(default_factory=dict)
    count: int = 0
    """The number of hosts requested so far."""

    @classmethod
    def open(cls) -> "Gate":
        """Listen on this machine.

        Raises:
            OSError: there is no port or no descriptor left.
        """
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.bind(("127.0.0.1", 0))
            listener.listen(_AT_ONCE)
            listener.settimeout(0)
        except OSError:
            listener.close()
            raise
        return cls(listener)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self.listener.getsockname()[1])

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts requested so far, each once."""
        return tuple(self._seen)

    def asked_since(self, count: int, is_forbidden: Callable[[str], bool]) -> str:
        """Return the first host requested after this number of requests, or empty if none was.

        A forbidden host does not count: no approval opens it, so nobody need be asked.
        """
        later = sorted((at, host) for host, at in self._seen.items() if at > count)
        return next((host for _, host in later if not is_forbidden(host)), "")

    async def run(self) -> None:
        """Refuse until cancelled."""
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        try:
            async with anyio.create_task_group() as group:
                while True:
                    await anyio.wait_readable(self.listener)
                    try:
                        connection, _ = self.listener.accept()
                        connection.settimeout(0)
                        stream = await SocketStream.from_socket(connection)
                    except OSError:
                        # No descriptor is left, or the client has gone.
                        await anyio.sleep(_PAUSE)
                    else:
                        group.start_soon(self._refuse, stream, limiter)
        finally:
            self.listener.close()

    async def _refuse(self, stream: SocketStream, limiter: anyio.CapacityLimiter) -> None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream, IndexError):
            async with limiter, stream:
                with anyio.move_on_after(_PATIENCE):
                    head = await stream.receive(_MOST_BYTES)
                    if head[0] == _SOCKS:
                        await stream.send(_NO_AUTHENTICATION)
                        self._note(_socks_host(await stream.receive(_MOST_BYTES)))
                        await stream.send(_NOT_ALLOWED)
                        return
                    while b"\r\n" not in head and len(head) < _MOST_BYTES:
                        head += await stream.receive(_MOST_BYTES)
                    found = _REQUEST.match(head)
                    self._note("" if found is None else found["host"].decode("ascii"))
                    await stream.send(_REFUSAL)

    def _note(self, host: str) -> None:
        name = host.lower().removesuffix(".")
        self.count += 1
        if name and (name in self._seen or len(self._seen) < _MOST_HOSTS):
            self._seen[name] = self.count


def _socks_host(request: bytes) -> str:
    kind, rest = request[3], request[4:]
    if kind == _NAME:
        return rest[1 : 1 + rest[0]].decode("ascii", "replace")
    if kind == _IPV4:
        return ".".join(str(byte) for byte in rest[:4])
    return ""
