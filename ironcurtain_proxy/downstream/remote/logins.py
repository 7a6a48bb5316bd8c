"""Secrets of a server over HTTP: the tokens of its login, and what its entry names.

The tokens of one server are in a file of its own, for this user alone. A login belongs to the entry
(its name and URL) and to the authorization server that gave it. Another process, such as `login` or
a second proxy, may write the file at any time: what is in memory is held against it at each use. A
token is renewed under a lock, because the one before may be spent by that.

An entry names secrets by placeholders in its headers and for its OAuth client. Reading them imports
no library of HTTP, so that `check` can ask for them, too.
"""

import hashlib
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, Encoder

from ironcurtain_proxy.errors import ConfigurationError, ServerUnavailableError
from ironcurtain_proxy.model.server import OAuthClient, RemoteEndpoint, ServerSpec
from ironcurtain_proxy.private_files import (
    locked_file,
    make_private_directory,
    read_private,
    write_whole,
)

_LARGEST: Final = 1 << 18
_DIGITS: Final = 32
_PATIENCE: Final = 40.0
"""Seconds for another process to renew a token."""
_LOOK_AGAIN: Final = 0.05
_SHORTEST: Final = 60.0
"""Seconds of a lifetime: a token is renewed half a minute before its end."""


BASIC: Final = "client_secret_basic"


class Login(Struct, frozen=True, kw_only=True):
    """The tokens of an authorization server, and the data to renew them."""

    url: str
    """The server that the token is for."""
    issuer: str
    token_endpoint: str
    access_token: str
    expires_at: float | None = None
    """Seconds since 1970, or None if it is not said."""
    refresh_token: str | None = None
    client_id: str = ""
    client_secret: str | None = None
    auth_method: str | None = None
    """The authentication of the client: `client_secret_basic`, `client_secret_post` or none."""
    resource: str | None = None
    scope: str | None = None
    wanted_scope: str | None = None
    """The scope that a server asked for later; the next login asks for it."""
    revocation_endpoint: str | None = None

    def __repr__(self) -> str:
        return f"Login(url={self.url!r}, issuer={self.issuer!r})"


def ends_at(seconds: float | None) -> float | None:
    """Return the end of a token with this lifetime from now.

    It is None if its lifetime is not known, or so short that each request would renew it: then it
    is renewed when it is refused.
    """
    return None if seconds is None or seconds < _SHORTEST else _now() + seconds


def is_due(login: Login, margin: float) -> bool:
    """Return whether a login ends within so many seconds."""
    return login.expires_at is not None and login.expires_at - margin < _now()


def _now() -> float:
    return time.time()  # noqa: TID251  read by other processes, and after a restart


_read: Final = Decoder(Login).decode
_written: Final = Encoder().encode


class LoginFile:
    """The file with the login of one server."""

    def __init__(self, directory: Path, server: str, url: str) -> None:
        """Set the names without reading.

        Args:
            directory: the directory of all logins.
            server: the server's name.
            url: the server's URL.
        """
        name = hashlib.sha256(f"{server}\n{url}".encode()).hexdigest()[:_DIGITS]
        self.path = directory / f"{name}.json"
        self._server, self._url = server, url
        self.lock = -1
        """While it is `locked`: the descriptor of the lock."""
        self._seen: tuple[int, int, int] | None = None
        self._login: Login | None = None

    def current(self) -> Login | None:
        """Return the login, or None if there is none, or none that can be used."""
        try:
            found = os.stat(self.path, follow_symlinks=False)  # noqa: PTH116  asked at each request
        except OSError:
            self._seen, self._login = None, None
            return None
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen != self._seen:
            self._seen, self._login = seen, self._read()
        return self._login

    def write(self, login: Login) -> None:
        """Replace the login in the file, while no other process writes it.

        Raises:
            ServerUnavailableError: it cannot be written.
        """
        try:
            make_private_directory(self.path.parent)
            write_whole(self.path, _written(login), locked=True)
        except OSError as error:
            # This process keeps the new login, because the old one may be spent.
            self._login = login
            raise ServerUnavailableError(
                f'the login of server "{self._server}" cannot be kept: {error.strerror}'
            ) from None

    async def put(self, login: Login | None) -> Login | None:
        """Replace or delete the login, and return the one before.

        Whoever renews that now comes first: it would be written over this, or after a logout.

        Raises:
            ServerUnavailableError: it cannot be written, or another holds it too long.
        """
        async with self.locked():
            before = self.current()
            self.path.unlink(missing_ok=True) if login is None else self.write(login)
        return before

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Keep all others, of any process, from renewing the login meanwhile.

        Raises:
            ServerUnavailableError: another holds it too long, or there is no place for it.
        """
        place = self.path.with_suffix(".lock")
        descriptor: int | None = None
        try:
            make_private_directory(place.parent)
            with anyio.fail_after(_PATIENCE):
                while (descriptor := locked_file(place)) is None:  # noqa: ASYNC110
                    await anyio.sleep(_LOOK_AGAIN)  # another process tells nobody
        except (OSError, TimeoutError):
            raise ServerUnavailableError(
                f'the login of server "{self._server}" cannot be changed now'
            ) from None
        self.lock = descriptor
        try:
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> Login | None:
        try:
            login = _read(read_private(self.path, _LARGEST, "the login"))
        except (ConfigurationError, MsgspecError, ValueError, RecursionError):
            return None
        return login if login.url == self._url else None


# --- secrets


_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def headers_of(spec: ServerSpec, endpoint: RemoteEndpoint) -> Mapping[str, str]:
    """Return the operator's headers, with the credentials that they name.

    Raises:
        ConfigurationError: a credential is missing, or has characters that no header can hold.
    """
    return {
        name: filled(text, spec.credentials, f'server "{spec.name}", header {name}')
        for name, text in endpoint.headers.items()
    }


def secret_of(own: OAuthClient, credentials: Mapping[str, str], server: str) -> str | None:
    """Return the secret of the operator's client.

    Raises:
        ConfigurationError: its credential is not there.
    """
    if own.client_secret is None:
        return None
    return filled(own.client_secret, credentials, f'server "{server}", oauth.clientSecret')


def filled(text: str, credentials: Mapping[str, str], where: str) -> str:
    """Return a text with the credentials that it names as `${NAME}`.

    Raises:
        ConfigurationError: a credential is missing, or has characters that no header can hold.
    """

    def value(found: re.Match[str]) -> str:
        secret = credentials.get(found[1])
        if secret is None:
            raise ConfigurationError(
                f"{where}: {found[1]} is not in serverCredentials of this server"
            )
        if not (secret.isascii() and secret.isprintable()):
            raise ConfigurationError(f"{where}: {found[1]} holds what no header can")
        return secret

    return _PLACEHOLDER.sub(value, text)
