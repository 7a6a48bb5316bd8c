"""One life of a server that is reached over HTTP: from its greeting until it forgets us.

It knows the transport and the secrets of the operator's headers; it does not know the meaning of a
message.

The token of a server comes from its file, and is renewed when it is due. A request never waits for
another one: the lock is held for as long as a token is renewed, and by those alone that have none.
Where a person has to log in, the operator is told the command; the agent, which cannot, is told
that.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import anyio
import httpx2
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.downstream.remote.exchange import (
    Authorizer,
    Inbound,
    NoLogin,
    Requester,
    Response,
    Sending,
    advice_on,
    led,
    origin,
)
from ironcurtain_proxy.downstream.remote.logins import (
    BASIC,
    Login,
    LoginFile,
    headers_of,
    is_due,
    secret_of,
)
from ironcurtain_proxy.downstream.remote.network import GuardedTransport, open_client
from ironcurtain_proxy.downstream.remote.renewal import renewed_apart
from ironcurtain_proxy.downstream.remote.streamable import BOTH, EVENTS, StreamableHttp
from ironcurtain_proxy.downstream.remote.token_requests import (
    TokenRefusedError,
    metadata_of,
    request_token,
)
from ironcurtain_proxy.downstream.starting import DownstreamOptions
from ironcurtain_proxy.errors import DownstreamError, ServerUnavailableError
from ironcurtain_proxy.jsonrpc.codec import Malformed, MirroredPaths, decode, message_id
from ironcurtain_proxy.jsonrpc.pipes import LineSink, LineSource
from ironcurtain_proxy.jsonrpc.sending import Batch
from ironcurtain_proxy.model.server import OAuthClient, RemoteEndpoint, ServerSpec

# --- stored login


_MARGIN: Final = 30.0
"""Seconds before its end from which a token is renewed."""
_SCOPE: Final = re.compile(r'\bscope="([\x20-\x21\x23-\x5b\x5d-\x7e]{1,1000})"')
"""The scopes that a server names, if they are some: they are shown to a person."""


class StoredLogin(Struct, eq=False):
    """Implements `Authorizer`."""

    server: str
    """The server's name."""
    endpoint: RemoteEndpoint
    """The server's endpoint."""
    client: httpx2.AsyncClient
    """Makes guarded connections."""
    file: LoginFile
    """The file of the login."""
    credentials: Mapping[str, str]
    """The values of `${NAME}` in the entry."""
    warn: Callable[[str], None]
    """Tells the operator."""
    _renewing: anyio.Lock = field(default_factory=anyio.Lock)

    async def header(self) -> str | None:
        """Return the value of `Authorization`, or None if there is no login."""
        login = self.file.current()
        if login is not None and is_due(login, _MARGIN) and await self._renew(login.access_token):
            login = self.file.current()
        return None if login is None else f"Bearer {login.access_token}"

    async def renew(self, refused: str | None, response: Response) -> bool:
        """Get a new token in place of a refused one. Return False if a person has to log in."""
        if response.wants_more:
            found = _SCOPE.search(response.header("www-authenticate"))
            await self._note_wanted("" if found is None else found[1].strip())
            return False
        if await self._renew(None if refused is None else refused.removeprefix("Bearer ")):
            return True
        self.warn(f"it wants a login: ironcurtain-proxy login {self.server}")
        return False

    async def _renew(self, refused: str | None) -> bool:
        async with self._renewing, self.file.locked():
            login = self.file.current()
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
                        self.file.write(replace(login, refresh_token=None, expires_at=None))
                    return False
                if renewed is not None:
                    self.file.write(renewed)
            return renewed is not None

    async def _note_wanted(self, scopes: str) -> None:
        """Keep the scopes that this login lacks, for the next login."""
        own = self.endpoint.oauth
        lacks = f"it wants more rights than its login has ({scopes or 'it does not say which'}): "
        if own is not None and own.grant == "client-credentials":
            self.warn(f"{lacks}name them in oauth.scope of its entry")
            return
        async with self._renewing, self.file.locked():
            login = self.file.current()
            if login is not None and scopes:
                wanted = " ".join(dict.fromkeys(f"{login.scope or ''} {scopes}".split()))
                if wanted != login.wanted_scope:
                    self.file.write(replace(login, wanted_scope=wanted))
        self.warn(f"{lacks}ironcurtain-proxy login {self.server}")

    async def _obtained(self, login: Login | None) -> Login | None:
        """Return a new login, or None if there is nothing to show for one."""
        own = self.endpoint.oauth
        if own is not None and own.grant == "client-credentials":
            return await self._as_client(own)
        if login is None or login.refresh_token is None:
            return None
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
        if login.resource is not None:
            form["resource"] = login.resource
        return await renewed_apart(self.server, self.endpoint, self.file, login, form)

    async def _as_client(self, own: OAuthClient) -> Login:
        """Return a login of the operator's own client, which needs no person."""
        if own.issuer is None:
            raise TokenRefusedError  # whose client it is, nobody said
        found = await metadata_of(self.client, own.issuer)
        url = self.endpoint.url
        form = {"grant_type": "client_credentials", "resource": url}
        if own.scope is not None:
            form["scope"] = own.scope
        empty = Login(
            url=url, issuer=own.issuer, token_endpoint=found.token_endpoint, access_token=""
        )
        secret = secret_of(own, self.credentials, self.server)
        asked = replace(empty, client_id=own.client_id, client_secret=secret, auth_method=BASIC)
        renewed = await request_token(self.client, asked, form)
        # The secret is the operator's, and is not kept with the login.
        return replace(renewed, client_id="", client_secret=None, auth_method=None)


# --- session


_GOODBYE: Final = 1.0
"""Seconds for telling a server that the session is over."""

_REFUSED: Final = 400

_OLDER: Final = (
    "it speaks the HTTP transport of 2024-11-05 (SSE), which newer servers and clients leave out"
)


class LegacySse(Sending):
    """The transport of 2024-11-05: one stream for all that arrives, one address to send to.

    The stream names that address first. When the stream ends, the session has ended.
    """

    def __init__(
        self, requester: Requester, url: str, inbound: Inbound, warn: Callable[[str], None]
    ) -> None:
        super().__init__(requester, url, inbound)
        self._warn = warn
        self._address = ""
        self._addressed = anyio.Event()

    async def _receive(self) -> None:
        try:
            await self._read()
            self._inbound.end("its stream has ended")
        except DownstreamError as error:
            self._inbound.end(str(error))
        await anyio.sleep_forever()

    async def _read(self) -> None:
        async with self._requester.open("GET", self._url, EVENTS) as response:
            if response.status >= _REFUSED or not response.is_stream or response.is_packed:
                raise ServerUnavailableError(
                    f"it answered with HTTP status {response.status} and no stream"
                    + advice_on(response.status)
                )
            async for event in response.events(self._requester.max_message):
                if event.event == "endpoint" and not self._address:
                    self._address = self._endpoint(event.data)
                    self._addressed.set()
                    self._warn(_OLDER)  # any server without such a page may answer 404
                elif event.event == "message" and event.data:
                    await self._inbound.put(event.data.encode())

    def _endpoint(self, text: str) -> str:
        """Return the URL for messages. It must be the server's own: messages carry its token."""
        here = httpx2.URL(self._url)
        address = led(here, text.strip())
        if address is None:
            raise ServerUnavailableError("it names no address to send to")
        if origin(here) != origin(address):
            raise ServerUnavailableError("it names an address of another origin to send to")
        return str(address)

    async def _deliver(self, line: bytes) -> None:
        await self._addressed.wait()
        message = decode(line)
        is_request = not isinstance(message, Malformed) and "method" in message
        request_id = message_id(message.get("id")) if is_request else None  # type: ignore[union-attr]
        try:
            async with self._requester.open("POST", self._address, BOTH, line) as response:
                if response.status >= _REFUSED:
                    raise ServerUnavailableError(
                        f'server "{self._requester.server}" refused the message with HTTP status '
                        f"{response.status}"
                    )
        except DownstreamError as error:
            if request_id is not None:
                self._inbound.lose(request_id, error)
        finally:
            self.backlog -= len(line)


class HttpSession:
    """Implements `starting.Life`, and the sink of its own wire."""

    def __init__(
        self, endpoint: RemoteEndpoint, requester: Requester, warn: Callable[[str], None]
    ) -> None:
        self._endpoint = endpoint
        self._requester = requester
        self._warn = warn
        self._inbound = Inbound()
        self._transport: StreamableHttp | LegacySse
        if endpoint.transport == "sse":
            self._transport = LegacySse(requester, endpoint.url, self._inbound, warn)
        else:
            self._transport = StreamableHttp(requester, endpoint.url, self._inbound)

    sandboxed: Final = False
    """Whether the server runs in a sandbox here: it runs on another machine."""
    pid: Final = None
    last_words: Final = ""

    async def open(self, max_line: int, batch: Batch) -> tuple[LineSource, LineSink]:  # noqa: ARG002
        """Return the wire to it. Its limit is the requester's."""
        return self._inbound, self

    def learn(self, mirrored: Mapping[str, MirroredPaths]) -> None:
        """Note which arguments of which tools stand in headers."""
        if isinstance(self._transport, StreamableHttp):
            self._transport.mirrored = mirrored

    def has_session(self) -> bool:
        """Return whether the server has begun a session: it hears answers only in one."""
        return not isinstance(self._transport, StreamableHttp) or self._transport.has_session

    async def watch(self) -> None:
        """Carry messages until cancelled."""
        transport = self._transport
        await transport.run()
        if isinstance(transport, StreamableHttp) and transport.older is not None:
            url = self._endpoint.url
            self._transport = LegacySse(self._requester, url, self._inbound, self._warn)
            self._transport.write(transport.older)
            await self._transport.run()

    async def close(self) -> None:
        """End the session, and close all connections."""
        transport = self._transport
        with anyio.move_on_after(_GOODBYE, shield=True):
            if isinstance(transport, StreamableHttp):
                with suppress(DownstreamError):  # it is gone
                    await transport.say_goodbye()
            await self._requester.close()

    def ending(self) -> str:
        """Return the reason for the end of the session."""
        return self._inbound.why

    # --- the sink

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport.is_closed

    @property
    def backlog(self) -> int:
        """Bytes that the server has not begun to answer."""
        return self._transport.backlog

    def write(self, line: bytes) -> None:
        """Send a message; raises `BrokenPipeError`."""
        self._transport.write(line)

    def abort(self) -> None:
        """Send no more."""
        self._transport.abort()


def begin_session(
    spec: ServerSpec,
    endpoint: RemoteEndpoint,
    options: DownstreamOptions,
    warn: Callable[[str], None],
) -> HttpSession:
    """Make a session; nothing is sent yet.

    Raises:
        ConfigurationError: a header names a credential that is not there.
    """
    headers = headers_of(spec, endpoint)
    transport = GuardedTransport(spec.name, endpoint)
    return HttpSession(
        endpoint,
        Requester(
            spec.name,
            transport,
            authorizer=_authorizer(spec, endpoint, options, transport, warn),
            headers=headers,
            max_message=options.max_message_bytes,
        ),
        warn,
    )


def _authorizer(
    spec: ServerSpec,
    endpoint: RemoteEndpoint,
    options: DownstreamOptions,
    transport: GuardedTransport,
    warn: Callable[[str], None],
) -> Authorizer:
    if endpoint.has_authorization or options.logins is None:
        return NoLogin()
    return StoredLogin(
        spec.name,
        endpoint,
        open_client(transport),
        LoginFile(options.logins, spec.name, endpoint.url),
        credentials=spec.credentials,
        warn=warn,
    )
