"""Requests to an authorization server: its metadata, a token, the revocation of a token.

Knows OAuth 2 as far as a running proxy needs it; the login of a person is `browser_login`'s. Every
connection is a guarded one, and nothing goes over http to another machine.
"""

import base64
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final, TypedDict
from urllib.parse import quote, urlsplit

import anyio
import httpx2
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from ironcurtain_proxy.downstream.remote.network import RefusedAddressError
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.server import is_public

_LARGEST: Final = 1 << 20
_DEADLINE: Final = 30.0
"""Seconds for one request."""
_OK: Final = 200
_REFUSALS: Final = frozenset({400, 401, 403})
_LONGEST_TOKEN: Final = 1 << 16


class Metadata(Struct, frozen=True):
    """The metadata of an authorization server (RFC 8414)."""

    issuer: str
    token_endpoint: str


class Token(Struct, frozen=True):
    """A token, as it is given (RFC 6749, 5.1)."""

    access_token: str
    token_type: str
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None

    def __repr__(self) -> str:
        return "Token()"


class _Given(TypedDict):
    data: dict[str, str]
    headers: dict[str, str]


class TokenRefusedError(Exception):
    """The authorization server gives no token for this grant."""


_metadata: Final = Decoder(Metadata).decode
_token: Final = Decoder(Token).decode


async def refuse_plain(request: httpx2.Request) -> None:
    """Refuse a request that others on the way could read.

    Raises:
        RefusedAddressError: it is one.
    """
    if request.url.scheme == "https":
        return
    host = request.url.host
    try:
        is_near = not is_public(ip_address(host.strip("[]")))
    except ValueError:
        is_near = host == "localhost"
    if request.url.scheme != "http" or not is_near:
        raise RefusedAddressError("the authorization server must be reached by https")


async def metadata_of(client: httpx2.AsyncClient, issuer: str) -> Metadata:
    """The metadata of an authorization server.

    Raises:
        ServerUnavailableError: it has no metadata, or those of another issuer.
    """
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    for url in (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    ):
        status, body = await _ask(client, client.build_request("GET", url))
        if status == _OK:
            try:
                found = _metadata(body)
            except (MsgspecError, RecursionError):
                continue
            if found.issuer.rstrip("/") == issuer.rstrip("/"):
                return found
    raise ServerUnavailableError("the authorization server names no token endpoint")


async def request_token(
    client: httpx2.AsyncClient,
    endpoint: str,
    form: Mapping[str, str],
    *,
    client_id: str,
    secret: str | None,
    method: str | None,
) -> Token:
    """Ask for a token.

    Raises:
        TokenRefusedError: there is none for this form.
        ServerUnavailableError: it cannot be asked, or answers otherwise.
    """
    given = _identified(form, client_id=client_id, secret=secret, method=method)
    status, body = await _ask(client, _posted(client, endpoint, given))
    if status in _REFUSALS:
        raise TokenRefusedError
    try:
        found = _token(body) if status == _OK else None
    except (MsgspecError, RecursionError):
        found = None
    if found is None or found.token_type.lower() != "bearer" or not _fits(found.access_token):
        raise ServerUnavailableError(f"the authorization server answered with status {status}")
    return found


async def revoke(
    client: httpx2.AsyncClient,
    endpoint: str,
    token: str,
    *,
    client_id: str,
    secret: str | None,
    method: str | None,
) -> bool:
    """Tell the authorization server that a token is not used any more (RFC 7009)."""
    given = _identified({"token": token}, client_id=client_id, secret=secret, method=method)
    status, _ = await _ask(client, _posted(client, endpoint, given))
    return status == _OK


def _posted(client: httpx2.AsyncClient, endpoint: str, given: _Given) -> httpx2.Request:
    """The request to an endpoint, which the authorization server named."""
    try:
        return client.build_request("POST", endpoint, **given)
    except httpx2.InvalidURL:
        raise ServerUnavailableError("the authorization server names no address") from None


def _identified(
    form: Mapping[str, str], *, client_id: str, secret: str | None, method: str | None
) -> _Given:
    headers = {"Accept": "application/json"}
    if method == "client_secret_basic" and secret is not None:
        pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return {"data": dict(form), "headers": headers}
    own = {"client_id": client_id, **({} if secret is None else {"client_secret": secret})}
    return {"data": {**form, **own}, "headers": headers}


async def _ask(client: httpx2.AsyncClient, request: httpx2.Request) -> tuple[int, bytes]:
    """The status and the body, in a bounded time and size."""
    await refuse_plain(request)
    body = b""
    try:
        with anyio.fail_after(_DEADLINE):
            response = await client.send(request, stream=True)
            try:
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > _LARGEST:
                        raise ServerUnavailableError(
                            "the authorization server sent too large an answer"
                        )
            finally:
                await response.aclose()
    except (httpx2.TransportError, TimeoutError):
        raise ServerUnavailableError("the authorization server cannot be reached") from None
    return response.status_code, body


def _fits(token: str) -> bool:
    return 0 < len(token) <= _LONGEST_TOKEN and token.isascii() and token.isprintable()
