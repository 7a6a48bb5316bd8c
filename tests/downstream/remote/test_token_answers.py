"""What an authorization server answers to a renewal: a token, a refusal, or neither for now."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
import pytest
from msgspec.structs import replace
from starlette.responses import Response

from ironcurtain_proxy.downstream.remote.logins import Login, LoginFile
from ironcurtain_proxy.downstream.remote.network import GuardedTransport, open_client
from ironcurtain_proxy.downstream.remote.token_requests import TokenRefusedError, request_token
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.jsonrpc.codec import encode
from tests.downstream.remote.site import Heard, Message, Site, remote, serving

pytestmark = pytest.mark.anyio

LOGIN: Final = Login(
    url="https://mcp.example/mcp",
    issuer="https://login.example",
    token_endpoint="",
    access_token="spent",  # noqa: S106  no secret
    refresh_token="old",  # noqa: S106
    expires_at=1.0,
    client_id="c",
)
GIVEN: Final[Message] = {"access_token": "new", "token_type": "Bearer", "refresh_token": "next"}


@pytest.mark.parametrize(
    "odd",
    [
        *[{"expires_in": odd} for odd in ("3600", 3600.5, "1e3", "", "never", None, True, [1])],
        *[{"expires_in": odd} for odd in (10**400, -1, "nan", "inf", "9" * 400)],
        *[{"scope": odd} for odd in (None, "", ["a", "b"], [1], 5)],
        *[{"token_type": odd} for odd in (None, "", "bearer", "BEARER")],
        *[{"refresh_token": odd} for odd in (None, "", 5)],
        {"id_token": None, "more": {"error": "x"}, "error": None},
    ],
)
async def test_a_renewed_token_counts_however_odd_what_may_be_left_out_is(
    odd: Message, tmp_path: Path
) -> None:
    """The token before is spent by then: whoever refuses the answer has to log in again."""
    given = {key: one for key, one in {**GIVEN, **odd}.items() if one is not None}
    for answer in ({**GIVEN, **odd}, given):
        async with answering(200, encode(answer)) as (client, url):
            renewed = await request_token(client, replace(LOGIN, token_endpoint=url), {})
        assert renewed.access_token == GIVEN["access_token"]
        has_next = isinstance(answer.get("refresh_token"), str) and answer["refresh_token"]
        assert renewed.refresh_token == ("next" if has_next else "old")
        file = LoginFile(tmp_path, "one", LOGIN.url)
        file.write(renewed)
        assert file.current() is not None, "it can be read again"


@pytest.mark.parametrize(
    ("status", "answer", "is_final"),
    [
        (400, b'{"error":"invalid_grant"}', True),
        (401, b"no", True),
        (200, b'{"error":"bad_refresh_token"}', True),
        (403, b'{"error":"access_denied"}', True),
        (403, b"<h1>blocked</h1>", False),
        (400, b'{"error":"temporarily_unavailable"}', False),
        (400, b'{"error":"slow_down"}', False),
        (503, b'{"error":"server_error"}', False),
        (429, b'{"error":"too many"}', False),
        (200, b"{}", False),
        (200, b'{"access_token":"a b"}', False),
        (200, b'{"access_token":5}', False),
        (200, b'{"access_token":"a","token_type":"mac"}', False),
        (200, b'{"access_token":"a","token_type":["bearer"]}', False),
        (200, b"[" * 5000, False),
        (200, b"[]", False),
    ],
)
async def test_only_a_refusal_of_the_grant_ends_a_login(
    status: int, answer: bytes, *, is_final: bool
) -> None:
    """A refresh token that is thrown away for a gateway's error costs a person a login."""
    with pytest.raises(TokenRefusedError if is_final else ServerUnavailableError):
        async with answering(status, answer) as (client, url):
            await request_token(client, replace(LOGIN, token_endpoint=url), {})


@asynccontextmanager
async def answering(status: int, body: bytes) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """A client of a token endpoint that answers this."""

    async def handler(_: Heard) -> Response:
        return Response(body, status, media_type="application/json")

    with serving(Site(handler=handler)) as endpoint:
        found = remote(endpoint.url).remote
        assert found is not None
        async with open_client(GuardedTransport("one", found)) as client:
            yield client, endpoint.url
