"""An authorization server on this machine, of the SDK's own handlers, and a site that wants tokens.

It consents to everything: where a person would log in, it sends the browser back with a code. What
the handlers check is checked: the client, PKCE, redirect URIs, codes and tokens.
"""

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2
import pytest
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    IdentityAssertionParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.downstream.remote.site import Heard, Site, serving
from tests.fakes import NO_TLS
from tests.program import PATIENCE, until

FAR = 4e9
"""Seconds since 1970, in the next century."""
METADATA = "/.well-known/oauth-protected-resource"


@dataclass
class Authority:
    """Implements the SDK's provider of an authorization server."""

    port: int = 0
    lifetime: int = 3600
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    refreshers: dict[str, RefreshToken] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """The grants that tokens were asked for with."""
    may_give: threading.Event = field(default_factory=threading.Event)
    """Cleared: whoever asks for a token waits."""
    may_answer: threading.Event = field(default_factory=threading.Event)
    """Cleared: whoever asks for another token waits when the one before is spent."""
    spent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_give.set()
        self.may_answer.set()

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=FAR,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        self.asked.append("authorization_code")
        return self.give(str(client.client_id), authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        self.asked.append("refresh_token")
        await until(self.may_give.is_set)  # another thread sets it
        return self.refreshers.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refreshers[refresh_token.token]
        self.spent.append(refresh_token.token)
        await until(self.may_answer.is_set)  # as above
        return self.give(str(client.client_id), refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.clear()
        self.refreshers.clear()

    async def exchange_identity_assertion(
        self, client: OAuthClientInformationFull, params: IdentityAssertionParams
    ) -> OAuthToken:
        raise NotImplementedError

    def give(self, client: str, resource: str | None) -> OAuthToken:
        """A new pair of tokens."""
        access, refresh = f"a-{secrets.token_hex(16)}", f"r-{secrets.token_hex(16)}"
        self.tokens[access] = AccessToken(
            token=access, client_id=client, scopes=[], resource=resource
        )
        self.refreshers[refresh] = RefreshToken(
            token=refresh, client_id=client, scopes=[], resource=resource
        )
        return OAuthToken(access_token=access, expires_in=self.lifetime, refresh_token=refresh)

    async def give_to_client(self, request: Request) -> Response:
        """The grant `client_credentials`, which the SDK's handlers do not know."""
        form = await request.form()
        self.asked.append(str(form["grant_type"]))
        if request.headers.get("authorization") != "Basic bWU6c2VjcmV0":
            return JSONResponse({"error": "invalid_client"}, 401)
        token = self.give("me", str(form["resource"]))
        return JSONResponse({**token.model_dump(), "refresh_token": None})

    async def describe(self, request: Request) -> Response:
        """The metadata of the issuer that knows this grant."""
        here = f"{self.issuer}/own"
        return JSONResponse({"issuer": here, "token_endpoint": f"{here}/token"})

    def app(self) -> Starlette:
        """Its addresses."""
        routes = create_auth_routes(
            self,
            AnyHttpUrl(self.issuer),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            revocation_options=RevocationOptions(enabled=True),
        )
        own = [
            Route("/.well-known/oauth-authorization-server/own", self.describe),
            Route("/own/token", self.give_to_client, methods=["POST"]),
        ]
        return Starlette(routes=[*routes, *own])

    async def hold(self, heard: Heard) -> Response | None:
        """Answers a request to the site that has no token of ours."""
        if heard.path.startswith(METADATA):
            port = heard.headers["host"].rpartition(":")[2]
            resource = f"http://127.0.0.1:{port}/mcp"
            return JSONResponse(
                {"resource": resource, "authorization_servers": [f"{self.issuer}/"]}
            )
        token = heard.headers.get("authorization", "").removeprefix("Bearer ")
        if token in self.tokens:
            return None
        port = heard.headers["host"].rpartition(":")[2]
        where = f'resource_metadata="http://127.0.0.1:{port}{METADATA}/mcp"'
        return Response(status_code=401, headers={"WWW-Authenticate": f"Bearer {where}"})


@contextmanager
def an_authority() -> Iterator[Authority]:
    """A running authorization server."""
    authority = Authority()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        authority.port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(authority.app(), log_level="critical", ws="none"))
        thread = threading.Thread(target=server.run, args=[[listening]], daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.01)
        try:
            yield authority
        finally:
            server.should_exit = True
            thread.join()


def guarded_site(authority: Authority, *, greets_anybody: bool = False) -> Site:
    """A site that wants the tokens of an authority; for a greeting perhaps not."""

    async def hold(heard: Heard) -> Response | None:
        if greets_anybody and heard.said in {"initialize", "notifications/initialized"}:
            return None
        return await authority.hold(heard)

    return Site(handler=hold)


async def browse(url: str) -> None:
    """What a browser does with the page: it goes where it is sent."""
    async with httpx2.AsyncClient(
        follow_redirects=True, trust_env=False, timeout=PATIENCE, verify=NO_TLS
    ) as browser:
        answer = await browser.get(url)
        assert answer.status_code == 200, answer.text


@pytest.fixture
def authority() -> Iterator[Authority]:
    with an_authority() as found:
        yield found


@pytest.fixture
def site(authority: Authority) -> Iterator[Site]:
    with serving(guarded_site(authority)) as found:
        yield found
