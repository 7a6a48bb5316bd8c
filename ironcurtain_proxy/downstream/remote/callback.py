"""The page of this machine to which the browser comes back after a login.

Knows one request: `GET /callback` with the state of this login. Every other is refused, so that no
page can end the login with a code of its own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from secrets import compare_digest
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream

from ironcurtain_proxy.errors import ConfigurationError

LOOPBACK: Final = "127.0.0.1"
PATH: Final = "/callback"
_LARGEST: Final = 16 * 1024
_SLOWEST: Final = 10.0
_PAGE: Final = "<!doctype html><meta charset=utf-8><title>ironcurtain-proxy</title><p>{words}</p>"


class Callback:
    """Waits for the browser."""

    def __init__(self, port: int) -> None:
        self.url = f"http://{LOOPBACK}:{port}{PATH}"
        """The address to which the authorization server sends the browser."""
        self._state = ""
        self._fields: dict[str, str] = {}
        self._came = anyio.Event()

    def expect(self, state: str) -> None:
        """Take the request with this state, and no other."""
        self._state = state

    async def fields(self) -> dict[str, str]:
        """The fields of the callback: `code`, `state` and `iss`, or `error`."""
        await self._came.wait()
        return self._fields

    async def answer(self, stream: SocketStream) -> None:
        """Answer one connection."""
        async with stream:
            with anyio.move_on_after(_SLOWEST), suppress(anyio.EndOfStream, OSError):
                status, words = self._take(await _request_line(stream))
                body = _PAGE.format(words=words).encode()
                head = (
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
                    f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
                    "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
                )
                await stream.send(head.encode() + body)

    def _take(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        fields = {name: values[0] for name, values in parse_qs(target.query).items()}
        given = fields.get("state", "")
        is_ours = bool(self._state) and compare_digest(given.encode(), self._state.encode())
        if method != "GET" or target.path != PATH or not is_ours or self._came.is_set():
            return "404 Not Found", "There is nothing here."
        self._fields = fields
        self._came.set()
        if "error" in fields:
            return "200 OK", "The login was refused. You can close this page."
        return "200 OK", "You are logged in. You can close this page."


@asynccontextmanager
async def listening_callback(port: int) -> AsyncIterator[Callback]:
    """Listen for the browser.

    Args:
        port: 0: any that is free.

    Raises:
        ConfigurationError: another program has the port.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=port)
    except OSError as error:
        raise ConfigurationError(f"port {port} of {LOOPBACK}: {error.strerror}") from None
    async with listener, anyio.create_task_group() as tasks:
        place = listener.extra(SocketAttribute.local_port)  # noqa: S610  not Django's
        callback = Callback(int(place))
        tasks.start_soon(listener.serve, callback.answer)
        yield callback
        tasks.cancel_scope.cancel()


async def _request_line(stream: SocketStream) -> str:
    taken = b""
    while b"\r\n\r\n" not in taken and len(taken) < _LARGEST:
        taken += await stream.receive()
    return taken.partition(b"\r\n")[0].decode("ascii", "replace")
