"""Requests to an authorization server: its metadata, a token, the revocation of a token.

Knows OAuth 2 as far as a running proxy needs it; the login of a person is `browser_login`'s. Every
connection is a guarded one, and nothing goes over http to another machine.
"""

import base64
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit

import anyio
import httpx2
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from ironcurtain_proxy.downstream.remote.logins import BASIC, Login, ends_at
from ironcurtain_proxy.downstream.remote.network import RefusedAddressError, body_of
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.server import is_public

LARGEST: Final = 1 << 20
DEADLINE: Final = 30.0
"""Seconds for one request."""
_OK: Final = 200
_FOR_NOW: Final = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,65536}")
"""A token in a header (RFC 6749, appendix A)."""


class Metadata(Struct, frozen=True):
    """The metadata of an authorization server (RFC 8414)."""

    issuer: str
    token_endpoint: str


class TokenRefusedError(Exception):
    """The authorization server gives no token for this grant."""


_metadata: Final = Decoder(Metadata).decode
_answer: Final = Decoder(dict[str, object]).decode


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
    """Return the metadata of an authorization server.

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


async def request_token(client: httpx2.AsyncClient, login: Login, form: Mapping[str, str]) -> Login:
    """Ask for a token at the endpoint of a login, as its client. Return the login with it.

    Raises:
        TokenRefusedError: there is none for this form.
        ServerUnavailableError: it cannot be asked, or answers otherwise.
    """
    status, body = await _ask(client, _posted(client, login.token_endpoint, login, form))
    try:
        said = _answer(body)
    except (MsgspecError, RecursionError):
        said = {}
    error = said.get("error")
    # A firewall answers 403, too: only an error says that the grant is refused.
    is_refusal = status in {400, 401} or (error is not None and status in {_OK, 403})
    if is_refusal and str(error) not in _FOR_NOW:
        raise TokenRefusedError
    found = _renewed(login, said) if status == _OK else None
    if found is None or not fits(found.access_token, found.refresh_token):
        raise ServerUnavailableError(f"the authorization server answered with status {status}")
    return found


def _renewed(login: Login, said: Mapping[str, object]) -> Login | None:
    """Return a login with the token of an answer (RFC 6749, 5.1), or None if there is none.

    What may be left out may be odd, too: it counts as left out, and a token without a type is a
    bearer's. The token before is spent by then, and a person would have to log in again.
    """
    token, refresh = said.get("access_token"), said.get("refresh_token")
    lasts, scope = said.get("expires_in"), said.get("scope")
    if not isinstance(token, str) or str(said.get("token_type") or "bearer").lower() != "bearer":
        return None
    try:
        seconds = float(lasts) if isinstance(lasts, int | float | str) else None
    except (ValueError, OverflowError):
        seconds = None
    if isinstance(scope, list):
        scope = " ".join([one for one in scope if isinstance(one, str)])
    return replace(
        login,
        access_token=token,
        expires_at=ends_at(seconds),
        refresh_token=refresh if refresh and isinstance(refresh, str) else login.refresh_token,
        scope=scope if scope and isinstance(scope, str) else login.scope,
    )


async def revoke(client: httpx2.AsyncClient, login: Login) -> bool:
    """Tell the authorization server that a login is not used any more (RFC 7009).

    Returns:
        False: it does not take that.
    """
    if login.revocation_endpoint is None:
        return False
    form = {"token": login.refresh_token or login.access_token}
    status, _ = await _ask(client, _posted(client, login.revocation_endpoint, login, form))
    return status == _OK


def _posted(
    client: httpx2.AsyncClient, endpoint: str, login: Login, form: Mapping[str, str]
) -> httpx2.Request:
    """Return the request to an endpoint, which the authorization server named."""
    headers, data, secret = {"Accept": "application/json"}, dict(form), login.client_secret
    if login.auth_method == BASIC and secret is not None:
        pair = f"{quote(login.client_id, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        data |= {"client_id": login.client_id}
        data |= {} if secret is None else {"client_secret": secret}
    try:
        return client.build_request("POST", endpoint, data=data, headers=headers)
    except httpx2.InvalidURL:
        raise ServerUnavailableError("the authorization server names no address") from None


async def _ask(client: httpx2.AsyncClient, request: httpx2.Request) -> tuple[int, bytes]:
    """Return the status and the body, in a bounded time and size."""
    await refuse_plain(request)
    try:
        with anyio.fail_after(DEADLINE):
            response = await client.send(request, stream=True)
            body = await body_of(response, LARGEST)
    except (httpx2.TransportError, TimeoutError):
        raise ServerUnavailableError("the authorization server cannot be reached") from None
    if body is None:
        raise ServerUnavailableError("the authorization server sent too large an answer")
    return response.status_code, body


def fits(*tokens: str | None) -> bool:
    """Return whether a header holds the token, and the file of logins this and the next."""
    return all(_TOKEN.fullmatch(one) for one in tokens if one is not None)
