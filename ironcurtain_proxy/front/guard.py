"""The checks of every request, and the sockets that this machine alone reaches.

Sockets that this machine alone reaches, and the file that names the port.

The checks of every request: the host, the origin, and the token of a principal.

Attacks that this stops: a page in the user's browser that sends requests to this machine (origin,
token), also under a name of its own that leads here (host); another program or user of this machine
(token).
"""

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from ironcurtain_proxy.agent.requests import INVALID_REQUEST
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.front.settings import PORT, PORT_FILE, SOCKET, FrontSettings, Principals
from ironcurtain_proxy.jsonrpc.codec import MessageId, encode
from ironcurtain_proxy.private_files import write_whole

# --- listening


LOOPBACK: Final = "127.0.0.1"
_QUEUE: Final = 128
_OURS_ALONE: Final = 0o177
_PROBE: Final = 1.0


@contextmanager
def listening(settings: FrontSettings) -> Iterator[list[socket.socket]]:
    """Listen where the settings say, and leave nothing behind afterwards.

    Raises:
        ConfigurationError: another program has the port or the path.
    """
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        if settings.socket is not None:
            sockets.append(opened.enter_context(_unix(settings.socket)))
        if settings.port is not None:
            tcp = opened.enter_context(_tcp(settings.port))
            sockets.append(tcp)
            if settings.port_file is not None:
                opened.enter_context(_named(settings.port_file, port_of(tcp)))
        yield sockets


def port_of(found: socket.socket) -> int:
    """The port of a TCP socket."""
    return int(found.getsockname()[1])


@contextmanager
def _tcp(port: int) -> Iterator[socket.socket]:
    # asyncio turns the waiting for further bytes (Nagle) off only where the protocol is named: else
    # the two halves of an answer are 40 ms apart.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((LOOPBACK, port))
        except OSError as error:
            raise ConfigurationError(f"{PORT} {port}: {error.strerror}") from None
        found.listen(_QUEUE)
        yield found


@contextmanager
def _unix(path: Path) -> Iterator[socket.socket]:
    _remove_left_over(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        before = os.umask(_OURS_ALONE)
        try:
            found.bind(str(path))
        except OSError as error:
            why = error.strerror or str(error)
            raise ConfigurationError(f"{SOCKET} {path}: {why}") from None
        finally:
            os.umask(before)
        own = path.lstat()  # the inode is kept from another use as long as this socket is open
        found.listen(_QUEUE)
        try:
            yield found
        finally:
            _remove_own(path, own)


def _remove_own(path: Path, own: os.stat_result) -> None:
    with suppress(OSError):
        if os.path.samestat(path.lstat(), own):
            path.unlink()


def _remove_left_over(path: Path) -> None:
    """Remove the socket of a killed front. Any other file is kept.

    Raises:
        ConfigurationError: something answers there.
    """
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            with suppress(OSError):
                path.unlink()
            return
        except OSError:
            return  # binding it says what is wrong
    raise ConfigurationError(f"{SOCKET} {path}: another program listens there")


@contextmanager
def _named(path: Path, port: int) -> Iterator[None]:
    text = f"{port}\n".encode()
    try:
        write_whole(path, text)
    except OSError as error:
        raise ConfigurationError(f"{PORT_FILE} {path}: {error.strerror}") from None
    try:
        yield
    finally:
        # The front that takes this one's place may have written the file meanwhile. The port tells
        # the two apart, because both listen. The inode does not: file systems use it again at once.
        with suppress(OSError):
            if path.read_bytes() == text:
                path.unlink()


# --- guard


JSON: Final = "application/json"
_CLOSING: Final = frozenset({401, 403, 408, 413, 421})


class RefusalError(Exception):
    """A request that is refused. The error's words repeat nothing of the request."""

    def __init__(
        self,
        status: int,
        words: str,
        *,
        code: int = INVALID_REQUEST,
        request_id: MessageId | None = None,
        headers: dict[str, str] | None = None,
        error: object = None,
    ) -> None:
        """Refuse a request.

        Args:
            status: of HTTP.
            words: what is wrong.
            code: of JSON-RPC.
            request_id: of the request, as far as it is known.
            headers: further ones of the answer.
            error: the whole error, in place of words and code.
        """
        super().__init__(words)
        self._status = status
        # A client that is refused, or sends too much, cannot hold its connection open by sending
        # more.
        closing = {"Connection": "close"} if status in _CLOSING else {}
        self._headers = {**(headers or {}), **closing}
        said = error or {"code": code, "message": words}
        self._said = {"jsonrpc": "2.0", "id": request_id, "error": said}

    def response(self) -> Response:
        """The response to the refused request."""
        return Response(encode(self._said), self._status, self._headers, JSON)


_NAMES: Final = (LOOPBACK, "localhost")


class RequestGuard:
    """Checks requests, and gives their principals."""

    def __init__(self, principals: Principals, hosts: Iterable[str]) -> None:
        """Accept requests of these principals to these hosts.

        Args:
            principals: who may come.
            hosts: what `Host` may say, with the port where that is not the scheme's own.
        """
        self._principals = principals
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(
            f"{scheme}://{host}" for host in self._hosts for scheme in ("http", "https")
        )

    def admit(self, headers: Headers) -> str:
        """The principal that a request comes from.

        Raises:
            RefusalError: it is of another host or page, or of nobody.
        """
        if headers.get("host", "").lower() not in self._hosts or len(headers.getlist("host")) > 1:
            raise RefusalError(421, "this address is not the proxy's; --public-name names another")
        if any(one.lower() not in self._origins for one in headers.getlist("origin")):
            raise RefusalError(403, "the request comes from a page of another origin")
        given = headers.getlist("authorization")
        principal = self._principals.of(given[0]) if len(given) == 1 else None
        if principal is None:
            raise RefusalError(401, "a token is needed", headers={"WWW-Authenticate": "Bearer"})
        return principal


def hosts_of(sockets: Sequence[socket.socket], public_names: Iterable[str]) -> list[str]:
    """The accepted values of `Host` for a front that listens on these sockets."""
    found = [*public_names]
    for one in sockets:
        if one.family == socket.AF_INET:
            found += [f"{name}:{port_of(one)}" for name in _NAMES]
            found += [f"{name}" for name in _NAMES if port_of(one) == 80]  # noqa: PLR2004
        else:
            found.append("localhost")
    return found
