"""Who may send requests to the front, and where it listens.

Its addresses and tokens are variables of the environment. They are taken out of it, so that no
session and no server finds a token there. A file of tokens belongs to the user alone and has a line
for each principal: `NAME TOKEN`. Tokens are compared as a whole and in constant time; they stand in
no log and no message. Sockets are reached from this machine alone; a file names the port.

Attacks that this stops: a page in the user's browser that sends requests to this machine (origin,
token), also under a name of its own that leads here (host); another program or user of this machine
(token).
"""

import os
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hmac import compare_digest
from pathlib import Path
from typing import ClassVar, Final

from starlette.datastructures import Headers
from starlette.responses import Response

from ironcurtain_proxy.agent.requests import INVALID_REQUEST
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.jsonrpc.codec import MessageId, encode
from ironcurtain_proxy.mailbox.answering import LONGEST, SHORTEST
from ironcurtain_proxy.model.values import WithSecrets
from ironcurtain_proxy.private_files import make_private_directory, read_private, write_whole

# --- principals


ONLY: Final = "agent"
"""The principal of a token without a name."""

_MOST_BYTES: Final = 1 << 18
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_SCHEME: Final = "bearer"
_PARTS: Final = 2


class Principals:
    """The tokens and their principals."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Keep the digests of the tokens.

        Args:
            names: by token, the name of its principal.
        """
        self._names = {token.encode(): name for token, name in names.items()}

    def of(self, authorization: str) -> str | None:
        """Return the principal of a header `Authorization`, or None if there is none."""
        scheme, _, given = authorization.partition(" ")
        token = given.strip().encode("utf-8", "surrogateescape")
        found = None
        # All of them, so that the time does not tell which one was nearly right.
        for known, name in self._names.items():
            if compare_digest(known, token):
                found = name
        return found if scheme.lower() == _SCHEME else None


def read_tokens(path: Path) -> Principals:
    """Read a file of tokens.

    Raises:
        ConfigurationError: it cannot be read or trusted, or a line is no name and token.
    """
    lines = read_private(path, _MOST_BYTES, "token file").decode("utf-8", "replace").splitlines()
    names: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"token file {path}, line {number}"
        if len(words) != _PARTS or _NAME.fullmatch(words[0]) is None:
            raise ConfigurationError(f"{where}: must be a name and a token, with a blank between")
        names[_checked(words[1], where)] = words[0]
    if not names:
        raise ConfigurationError(f"token file {path} has no line `NAME TOKEN`")
    return Principals(names)


def one_token(token: str, where: str) -> Principals:
    """Return the principals of one token without a name.

    Raises:
        ConfigurationError: it is too short.
    """
    return Principals({_checked(token, where): ONLY})


def make_tokens(path: Path) -> None:
    """Write a file with one new token, for this user alone.

    Raises:
        ConfigurationError: it cannot be written.
    """
    try:
        make_private_directory(path.parent)
        write_whole(path, f"{ONLY} {secrets.token_urlsafe(32)}\n".encode())
    except OSError as error:
        raise ConfigurationError(f"token file {path} cannot be written: {error.strerror}") from None


def _checked(token: str, where: str) -> str:
    if not SHORTEST <= len(token) <= LONGEST or _TOKEN.fullmatch(token) is None:
        raise ConfigurationError(
            f"{where}: a token is {SHORTEST} to {LONGEST} visible characters of ASCII"
        )
    return token


# --- settings


SOCKET: Final = "PROXY_SOCKET_PATH"
PORT: Final = "PROXY_TCP_PORT"
PORT_FILE: Final = "PROXY_PORT_FILE"
TOKEN: Final = "PROXY_TOKEN"  # noqa: S105  the name of a variable
TOKENS_FILE: Final = "PROXY_TOKENS_FILE"
STANDARD_FILE: Final = "http-tokens"
"""The file of tokens in `~/.ironcurtain`; made with one token if no other file is named."""

_LARGEST_PORT: Final = 65535


class FrontSettings(WithSecrets, frozen=True, kw_only=True):
    """The addresses and the principals of the front."""

    hidden: ClassVar[frozenset[str]] = frozenset({"principals"})

    socket: Path | None
    port: int | None
    """The port; 0: any free one; None: no TCP."""
    port_file: Path | None
    public_names: Sequence[str] = ()
    """Hosts under which a reverse proxy shows the front."""
    principals: Principals
    tokens_file: Path | None
    """The file of tokens, or None if the token came in a variable."""


def take_settings(
    environ: MutableMapping[str, str], state: Path, public_names: Sequence[str] = ()
) -> FrontSettings:
    """Take the settings out of the environment. Makes a file of tokens if there is none.

    Raises:
        ConfigurationError: one of them cannot be used.
    """
    said = {name: environ.pop(name, "").strip() for name in (SOCKET, PORT, PORT_FILE)}
    token, named = environ.pop(TOKEN, "").strip(), environ.pop(TOKENS_FILE, "").strip()
    port = _port(said[PORT]) if said[PORT] else None
    if port is None and not said[SOCKET]:
        port = 0
    if port is None and said[PORT_FILE]:
        raise ConfigurationError(f"{PORT_FILE}: there is no port, because {SOCKET} is set alone")
    file: Path | None = None
    if token and named:
        raise ConfigurationError(f"{TOKEN} and {TOKENS_FILE}: set one of them")
    if token:
        principals = one_token(token, TOKEN)
    else:
        file = _path(named, TOKENS_FILE) or state / STANDARD_FILE
        if not named and not file.exists() and not file.is_symlink():
            make_tokens(file)
        principals = read_tokens(file)
    return FrontSettings(
        socket=_path(said[SOCKET], SOCKET),
        port=port,
        port_file=_path(said[PORT_FILE], PORT_FILE),
        public_names=tuple(public_names),
        principals=principals,
        tokens_file=file,
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > _LARGEST_PORT:
        raise ConfigurationError(f"{PORT}: {text[:20]!r} is no port; 0 stands for any that is free")
    return int(text)


def _path(text: str, variable: str) -> Path | None:
    if not text:
        return None
    if not text.startswith("/"):
        raise ConfigurationError(f"{variable}: must be an absolute path")
    return Path(text)


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
    """Return the port of a TCP socket."""
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
        """Return the response to the refused request."""
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
        """Return the principal that a request comes from.

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
    """Return the accepted values of `Host` for a front that listens on these sockets."""
    found = [*public_names]
    for one in sockets:
        if one.family == socket.AF_INET:
            found += [f"{name}:{port_of(one)}" for name in _NAMES]
            found += [f"{name}" for name in _NAMES if port_of(one) == 80]  # noqa: PLR2004
        else:
            found.append("localhost")
    return found
