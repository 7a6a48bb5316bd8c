"""The login of a person in a browser, by the SDK's OAuth client over guarded connections.

The SDK discovers the authorization server, registers a client and exchanges the code (PKCE). It is
imported here alone, by the command `login`: a running proxy needs none of it. The request that
meets the 401 is a greeting, or else a list; once there are tokens, nothing more is sent.
"""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from secrets import compare_digest
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from anyio.abc import SocketAttribute, SocketStream
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from ironcurtain_proxy.downstream.eras import CLIENT, NO_CAPABILITIES, PROTOCOL_VERSION, enveloped
from ironcurtain_proxy.downstream.remote.exchange import UNAUTHORIZED
from ironcurtain_proxy.downstream.remote.logins import BASIC, Login, ends_at
from ironcurtain_proxy.downstream.remote.network import GuardedTransport, body_of, open_client
from ironcurtain_proxy.downstream.remote.streamable import BOTH, SESSION
from ironcurtain_proxy.downstream.remote.token_requests import (
    DEADLINE,
    LARGEST,
    fits,
    refuse_plain,
)
from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.jsonrpc.codec import headers_of_message
from ironcurtain_proxy.model.server import OAuthClient, RemoteEndpoint
from ironcurtain_proxy.model.values import Json

PATIENCE: Final = 600.0
"""Seconds for a person to log in."""
_REASON: Final = 300
_SECRET: Final = re.compile(r"""(['"]\w*(?:token|secret)['"]\s*:\s*['"])[^'"]*""")
"""A secret in an answer that the SDK repeats in its errors."""
_NAME: Final = "ironcurtain-proxy"
LOOPBACK: Final = "127.0.0.1"
PATH: Final = "/callback"
_LARGEST_REQUEST: Final = 16 * 1024
_SLOWEST: Final = 10.0
_PAGE: Final = "<!doctype html><meta charset=utf-8><title>ironcurtain-proxy</title><p>{words}</p>"

Shower = Callable[[str], Awaitable[None]]
"""Shows a person the page of an authorization server."""


class LoginFailedError(IronCurtainError):
    """A login that failed; the message tells the operator why."""


async def log_in(
    server: str,
    endpoint: RemoteEndpoint,
    secret: str | None,
    show: Shower,
    port: int = 0,
    *,
    scope: str | None = None,
) -> Login:
    """Let a person log in.

    Args:
        server: the name of the server.
        endpoint: the server's endpoint.
        secret: the secret of the registered client, if it has one.
        show: shows a page.
        port: to which the browser comes back, or 0 if any that is free.
        scope: what the login is for, or None if what the server says.

    Raises:
        LoginFailedError: there is no login.
        ConfigurationError: the port is taken.
    """
    # This logger prints tracebacks of errors that are reported below in one line.
    logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)
    logging.getLogger("mcp.client.auth.oauth2").setLevel(logging.CRITICAL + 1)
    tokens = _Tokens(endpoint.oauth, secret)
    client = open_client(_Bounded(GuardedTransport(server, endpoint), tokens, scope))
    client.event_hooks, client.timeout = {"request": [refuse_plain]}, DEADLINE
    async with listening_callback(port) as callback, client:
        provider = _provider(endpoint, tokens, callback, show)
        response, problem = httpx2.Response(UNAUTHORIZED), ""
        # What goes wrong is caught here: a task group would put it into a group. It can be anything
        # because the SDK reads what strangers write: a lifetime that no float holds.
        try:
            with anyio.fail_after(PATIENCE):
                response = await _refused_request(client, endpoint.url, provider)
        except TimeoutError:
            problem = "nobody has logged in"
        except Exception as error:  # noqa: BLE001
            problem = _words(error)
    if problem:
        raise LoginFailedError(problem)
    if tokens.given is None:
        if response.status_code == UNAUTHORIZED:
            raise LoginFailedError("the server refuses the request and offers no login")
        raise LoginFailedError(f"the server wants no login: it answers {response.status_code}")
    return _login(endpoint, provider, tokens.given)


async def _refused_request(
    client: httpx2.AsyncClient, url: str, provider: OAuthClientProvider
) -> httpx2.Response:
    """Return the answer to the first request that may need a token.

    The server is asked as `connection` asks it: without a handshake, then with one; a server that
    wants no token for that may want one for its tools.
    """

    async def ask(message: Mapping[str, Json], headers: Mapping[str, str]) -> httpx2.Response:
        return await client.post(url, json=message, headers={**BOTH, **headers}, auth=provider)

    response = await ask(_DISCOVER, headers_of_message(_DISCOVER, {}))
    if response.is_success:
        response = await ask(_MODERN_LIST, headers_of_message(_MODERN_LIST, {}))
    if response.status_code == UNAUTHORIZED or response.is_success:
        return response
    response = await ask(_GREETING, {})
    if not response.is_success:
        return response
    session = {name: response.headers[name] for name in (SESSION,) if name in response.headers}
    return await ask(_LIST, {**session, "mcp-protocol-version": PROTOCOL_VERSION})


# --- the page to which the browser comes back


class Callback:
    """The page of this machine to which the browser comes back.

    It knows one request: `GET /callback` with the state of this login. Every other is refused, so
    that no page can end the login with a code of its own.
    """

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
        """Return the fields of the callback: `code`, `state` and `iss`, or `error`."""
        await self._came.wait()
        return self._fields

    async def answer(self, stream: SocketStream) -> None:
        """Answer one connection."""
        async with stream:
            # Nothing that a stranger sends ends the login: half a request, or no URL.
            with anyio.move_on_after(_SLOWEST), suppress(Exception):
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
    while b"\r\n\r\n" not in taken and len(taken) < _LARGEST_REQUEST:
        taken += await stream.receive()
    return taken.partition(b"\r\n")[0].decode("ascii", "replace")


# --- what the SDK is given


class _Tokens:
    """The SDK's store: gives the operator's client, and holds new tokens in memory."""

    def __init__(self, own: OAuthClient | None, secret: str | None) -> None:
        self.given: OAuthToken | None = None
        self._own = own
        self._secret = secret

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        if not fits(tokens.access_token, tokens.refresh_token):
            # It would be kept as a login, and refused with the first request.
            raise OAuthFlowError("the authorization server sent a token that no header can hold")
        self.given = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        # A client that was registered at an earlier login knows another port of ours.
        if self._own is None:
            return None
        return OAuthClientInformationFull(
            client_id=self._own.client_id,
            client_secret=self._secret,
            issuer=self._own.issuer,
            token_endpoint_auth_method="none" if self._secret is None else BASIC,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        del client_info
        if self._own is not None:
            raise OAuthFlowError(
                f"the server names another authorization server than {self._own.issuer}"
            )


class _Bounded(httpx2.AsyncBaseTransport):
    """Reads short answers only, and none after there are tokens."""

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, tokens: _Tokens, scope: str | None
    ) -> None:
        self._inner = inner
        self._tokens = tokens
        self._scope = scope

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._tokens.given is not None:
            return httpx2.Response(204)
        response = await self._inner.handle_async_request(request)
        body = await body_of(response, LARGEST)
        if body is None:
            raise LoginFailedError(f"{request.url.host} sent an answer that is too large")
        headers = [pair for pair in response.headers.raw if pair[0].lower() not in _FRAMING]
        found = httpx2.Response(response.status_code, headers=headers, content=body)
        # The SDK would use any Python codec that the charset names; some of them unpack archives.
        kind = found.headers.get("content-type", "")
        found.headers["content-type"] = kind.partition(";")[0]
        if self._scope is not None and found.status_code == UNAUTHORIZED:
            # The SDK asks for what the challenge names first.
            said = found.headers.get("www-authenticate", "Bearer").partition(" ")[2]
            found.headers["www-authenticate"] = f'Bearer scope="{self._scope}", {said}'
        return found

    async def aclose(self) -> None:
        await self._inner.aclose()


_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"content-encoding"})

_LIST: Final[Mapping[str, Json]] = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
_GREETING: Final[Mapping[str, Json]] = {
    **_LIST,
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": CLIENT},
}
_DISCOVER: Final[Mapping[str, Json]] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": enveloped({}, NO_CAPABILITIES),
}
_MODERN_LIST: Final[Mapping[str, Json]] = {**_DISCOVER, "id": 2, "method": "tools/list"}


def _provider(
    endpoint: RemoteEndpoint, tokens: _Tokens, callback: Callback, show: Shower
) -> OAuthClientProvider:
    async def open_page(url: str) -> None:
        found = provider.context.oauth_metadata
        if found is None:
            # The SDK would guess the addresses, and a person would log in for nothing.
            raise OAuthFlowError(
                "the server names no authorization server whose description can be used"
            )
        if "S256" not in (found.code_challenge_methods_supported or ()):
            # A client must then refuse (MCP, authorization, "PKCE"): whoever catches the code
            # could use it.
            raise OAuthFlowError(
                f"the authorization server {found.issuer} does not say that it checks PKCE "
                "(S256 in code_challenge_methods_supported): a stolen code would be a login"
            )
        await refuse_plain(httpx2.Request("GET", url))
        callback.expect(parse_qs(urlsplit(url).query).get("state", [""])[0])
        await show(url)

    async def come_back() -> AuthorizationCodeResult:
        fields = await callback.fields()
        if "error" in fields:
            raise OAuthFlowError(f"the authorization server says: {fields['error']}")
        return AuthorizationCodeResult(
            code=fields.get("code", ""), state=fields.get("state"), iss=fields.get("iss")
        )

    provider = OAuthClientProvider(
        server_url=endpoint.url,
        client_metadata=OAuthClientMetadata(
            client_name=_NAME, redirect_uris=[AnyUrl(callback.url)], software_id=_NAME
        ),
        storage=tokens,
        redirect_handler=open_page,
        callback_handler=come_back,
    )
    return provider


def _login(endpoint: RemoteEndpoint, provider: OAuthClientProvider, given: OAuthToken) -> Login:
    context = provider.context
    found, client = context.oauth_metadata, context.client_info
    if found is None or client is None:
        raise LoginFailedError("the server names no authorization server")
    revocation = getattr(found, "revocation_endpoint", None)
    return Login(
        url=endpoint.url,
        issuer=str(found.issuer),
        token_endpoint=str(found.token_endpoint),
        access_token=given.access_token,
        expires_at=ends_at(given.expires_in),
        refresh_token=given.refresh_token,
        client_id=client.client_id or "",
        client_secret=client.client_secret,
        auth_method=client.token_endpoint_auth_method,
        resource=context.get_resource_url() if context.should_include_resource_param() else None,
        scope=given.scope,
        revocation_endpoint=None if revocation is None else str(revocation),
    )


def _words(error: Exception) -> str:
    text = "".join([char if char.isprintable() else " " for char in str(error)])
    return _SECRET.sub(r"\1…", text)[:_REASON] or type(error).__name__
