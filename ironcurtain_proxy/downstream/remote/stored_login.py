"""The token of a server, from its file, renewed when it is due.

A request never waits for another one: the lock is held for as long as a token is renewed, and by
those alone that have none. Where a person has to log in, the operator is told the command; the
agent, which cannot, is told that.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import anyio
import httpx2
from msgspec.structs import replace

from ironcurtain_proxy.downstream.remote.logins import Login, LoginFile, ends_at, is_due, secret_of
from ironcurtain_proxy.downstream.remote.requests import Response
from ironcurtain_proxy.downstream.remote.token_requests import (
    Token,
    TokenRefusedError,
    metadata_of,
    request_token,
)
from ironcurtain_proxy.model.server import OAuthClient, RemoteEndpoint

_MARGIN: Final = 30.0
"""Seconds before its end from which a token is renewed."""
_SCOPE: Final = re.compile(r'\bscope="([\x20-\x21\x23-\x5b\x5d-\x7e]{1,1000})"')
_BASIC: Final = "client_secret_basic"


class StoredLogin:
    """Implements `requests.Authorizer`."""

    def __init__(
        self,
        server: str,
        endpoint: RemoteEndpoint,
        client: httpx2.AsyncClient,
        file: LoginFile,
        *,
        credentials: Mapping[str, str],
        warn: Callable[[str], None],
    ) -> None:
        """Set the names without a request.

        Args:
            server: the server's name.
            endpoint: the server's endpoint.
            client: makes guarded connections.
            file: the file of the login.
            credentials: the values of `${NAME}` in the entry.
            warn: tells the operator.
        """
        self._server = server
        self._endpoint = endpoint
        self._client = client
        self._file = file
        self._credentials = credentials
        self._warn = warn
        self._renewing = anyio.Lock()

    async def header(self) -> str | None:
        """The value of `Authorization`, or None if there is no login."""
        login = self._file.current()
        if login is not None and is_due(login, _MARGIN) and await self._renew(login.access_token):
            login = self._file.current()
        return None if login is None else f"Bearer {login.access_token}"

    async def renew(self, refused: str | None, response: Response) -> bool:
        """Get a new token in place of a refused one. False: a person has to log in."""
        if response.wants_more:
            await self._note_wanted(_scopes(response))
            return False
        if await self._renew(None if refused is None else refused.removeprefix("Bearer ")):
            return True
        self._warn(f"it wants a login: ironcurtain-proxy login {self._server}")
        return False

    async def _renew(self, refused: str | None) -> bool:
        async with self._renewing, self._file.locked():
            login = self._file.current()
            if login is not None and login.access_token != refused:
                return True  # another has renewed it meanwhile
            # To the end, also for a session that ends: the authorization server has spent the old
            # token by then, and a new one that nobody keeps ends the login.
            with anyio.CancelScope(shield=True):
                try:
                    renewed = await self._obtained(login)
                except TokenRefusedError:
                    if login is not None:
                        # The refused token is not sent again.
                        self._file.write(replace(login, refresh_token=None, expires_at=None))
                    return False
                if renewed is not None:
                    self._file.write(renewed)
            return renewed is not None

    async def _note_wanted(self, scopes: str) -> None:
        """Keep the scopes that this login lacks, for the next login."""
        own = self._endpoint.oauth
        lacks = f"it wants more rights than its login has ({scopes or 'it does not say which'}): "
        if own is not None and own.grant == "client-credentials":
            self._warn(f"{lacks}name them in oauth.scope of its entry")
            return
        async with self._renewing, self._file.locked():
            login = self._file.current()
            if login is not None and scopes:
                wanted = " ".join(dict.fromkeys(f"{login.scope or ''} {scopes}".split()))
                if wanted != login.wanted_scope:
                    self._file.write(replace(login, wanted_scope=wanted))
        self._warn(f"{lacks}ironcurtain-proxy login {self._server}")

    async def _obtained(self, login: Login | None) -> Login | None:
        """A new login, or None if there is nothing to show for one."""
        own = self._endpoint.oauth
        if own is not None and own.grant == "client-credentials":
            return await self._as_client(own)
        if login is None or login.refresh_token is None:
            return None
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
        if login.resource is not None:
            form["resource"] = login.resource
        token = await request_token(
            self._client,
            login.token_endpoint,
            form,
            client_id=login.client_id,
            secret=login.client_secret,
            method=login.auth_method,
        )
        return _with(login, token)

    async def _as_client(self, own: OAuthClient) -> Login:
        """A login of the operator's own client, which needs no person."""
        if own.issuer is None:
            raise TokenRefusedError  # whose client it is, nobody said
        found = await metadata_of(self._client, own.issuer)
        url = self._endpoint.url
        form = {"grant_type": "client_credentials", "resource": url}
        if own.scope is not None:
            form["scope"] = own.scope
        secret = secret_of(own, self._credentials, self._server)
        token = await request_token(
            self._client,
            found.token_endpoint,
            form,
            client_id=own.client_id,
            secret=secret,
            method=_BASIC,
        )
        empty = Login(
            url=url, issuer=own.issuer, token_endpoint=found.token_endpoint, access_token=""
        )
        return _with(empty, token)


def _scopes(response: Response) -> str:
    """The scopes that a server names, if they are some: they are shown to a person."""
    found = _SCOPE.search(response.header("www-authenticate"))
    return "" if found is None else found[1].strip()


def _with(login: Login, token: Token) -> Login:
    return replace(
        login,
        access_token=token.access_token,
        expires_at=ends_at(token.expires_in),
        refresh_token=token.refresh_token or login.refresh_token,
        scope=token.scope or login.scope,
    )
