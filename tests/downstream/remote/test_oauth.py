"""Logins to servers over HTTP, with a real authorization server: got, used, renewed, refused."""

import bz2
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from anyio import wait_all_tasks_blocked
from anyio.abc import SocketAttribute
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from msgspec.structs import replace
from starlette.responses import JSONResponse, Response

from ironcurtain_proxy.downstream.remote import logins
from ironcurtain_proxy.downstream.remote.browser_login import LoginFailedError, log_in
from ironcurtain_proxy.downstream.remote.logins import Login, LoginFile
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.server import RemoteEndpoint
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.authorization import Authority, authority, browse, site
from tests.downstream.remote.site import Heard, Message, Site, done, remote, serving
from tests.downstream.scripted_servers import OPTIONS, running, text_of
from tests.fakes import NO_TLS
from tests.program import until

__all__ = ["authority", "site"]

pytestmark = pytest.mark.anyio

HERE: list[Json] = ["127.0.0.1"]


def endpoint_of(site: Site, **entry: Json) -> RemoteEndpoint:
    endpoint = remote(site.url, credentials=None, addresses=HERE, **entry).remote
    assert endpoint is not None
    return endpoint


def a_login(site: Site, authority: Authority, **fields: float | str) -> Login:
    """A login as `login` leaves it."""
    given = authority.give("c", site.url)
    authority.clients["c"] = OAuthClientInformationFull(
        client_id="c",
        token_endpoint_auth_method="none",  # noqa: S106  no secret
    )
    login = Login(
        url=site.url,
        issuer=authority.issuer,
        token_endpoint=f"{authority.issuer}/token",
        access_token=given.access_token,
        refresh_token=given.refresh_token,
        client_id="c",
    )
    return replace(login, **fields)


@asynccontextmanager
async def using(
    site: Site, path: Path, credentials: dict[str, str] | None = None, **entry: Json
) -> AsyncIterator[DownstreamServers]:
    spec = remote(site.url, addresses=HERE, credentials=credentials, **entry)
    async with running(spec, options=replace(OPTIONS, logins=path)) as servers:
        yield servers


async def test_a_person_logs_in_and_the_token_is_used(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    login = await log_in("one", endpoint_of(site), None, browse)
    assert login.issuer.rstrip("/") == authority.issuer
    file = LoginFile(tmp_path / "logins", "one", site.url)
    file.write(login)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
    async with using(site, tmp_path / "logins") as servers:
        assert await text_of(servers, "echo") == "done"
    assert authority.tokens[login.access_token].resource == site.url
    asked = site.said("server/discover")
    assert "authorization" not in asked[0].headers
    assert len(asked) == 2, "nothing was asked with the new token but by the proxy"
    assert len(site.said("initialize")) == 1


async def test_a_refused_token_is_renewed_once_for_all_that_met_it(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    file = LoginFile(tmp_path, "one", site.url)
    file.write(a_login(site, authority))
    async with using(site, tmp_path) as servers:
        authority.tokens.clear()
        async with anyio.create_task_group() as calls:
            for _ in range(5):
                calls.start_soon(text_of, servers, "echo")
    assert authority.asked == ["refresh_token"]
    now = file.current()
    assert now is not None
    assert now.access_token in authority.tokens


async def test_a_token_that_ends_soon_is_renewed_before_it_is_used(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    login = a_login(site, authority, expires_at=1.0)
    LoginFile(tmp_path, "one", site.url).write(login)
    async with using(site, tmp_path) as servers:
        assert await text_of(servers, "echo") == "done"
    assert authority.asked == ["refresh_token"]
    assert login.access_token not in str([one.headers for one in site.heard])


async def test_the_agent_is_told_of_a_lacking_login_without_a_command_and_the_operator_with_one(
    site: Site, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    LoginFile(tmp_path, "one", site.url).write(a_login(site, authority))
    async with using(site, tmp_path) as servers:
        authority.tokens.clear()
        authority.refreshers.clear()
        for _ in range(2):
            with pytest.raises(DownstreamError, match="wants a login") as raised:
                await text_of(servers, "echo")
            assert "ironcurtain-proxy login" not in str(raised.value)
        assert authority.asked == ["refresh_token"], "what was refused is not shown again"
        LoginFile(tmp_path, "one", site.url).write(a_login(site, authority))
        assert await text_of(servers, "echo") == "done", "a login of another process is used"
    assert "ironcurtain-proxy login one" in caplog.text


async def test_no_request_waits_for_another(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    LoginFile(tmp_path, "one", site.url).write(a_login(site, authority))
    order: list[str] = []

    async def handler(heard: Heard) -> Response | None:
        if heard.said != "tools/call":
            return await authority.hold(heard)
        if not order:
            order.append("slow began")
            await until(lambda: "fast" in order)  # in another thread's loop
        else:
            order.append("fast")
        return JSONResponse(done(heard))

    site.handler = handler
    async with using(site, tmp_path) as servers, anyio.create_task_group() as calls:
        calls.start_soon(text_of, servers, "echo")
        calls.start_soon(text_of, servers, "echo")
    assert order == ["slow began", "fast"]


async def test_a_client_of_the_operator_needs_no_person(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    own: Json = {
        "clientId": "me",
        "clientSecret": "${SECRET}",
        "issuer": f"{authority.issuer}/own",
        "grant": "client-credentials",
    }
    async with using(site, tmp_path, {"SECRET": "secret"}, oauth=own) as servers:
        assert await text_of(servers, "echo") == "done"
        authority.tokens.clear()
        assert await text_of(servers, "echo") == "done"
    assert authority.asked == ["client_credentials"] * 2


async def test_the_secret_of_a_client_goes_to_its_issuer_alone(
    site: Site, authority: Authority
) -> None:
    own: Json = {"clientId": "me", "clientSecret": "s3cret", "issuer": "https://other.example"}
    with pytest.raises(LoginFailedError, match=r"(?i)another authorization server|issuer"):
        await log_in("one", endpoint_of(site, oauth=own), "s3cret", browse)
    assert not authority.asked
    assert "s3cret" not in str(authority.clients)


@pytest.mark.parametrize(
    "issuer", ["http://10.0.0.1:9", "http://169.254.169.254", "http://auth.example", "file:///x"]
)
async def test_an_authorization_server_elsewhere_in_the_network_is_not_asked(
    authority: Authority, issuer: str
) -> None:
    async def handler(heard: Heard) -> Response | None:
        if heard.path.startswith("/.well-known/oauth-protected-resource"):
            url = f"http://{heard.headers['host']}/mcp"
            return JSONResponse({"resource": url, "authorization_servers": [issuer]})
        return await authority.hold(heard)

    with serving(Site(handler=handler)) as site, pytest.raises(LoginFailedError):
        await log_in("one", endpoint_of(site), None, browse)
    assert not authority.asked


@pytest.mark.parametrize("what", ["metadata", "token"])
async def test_an_authorization_server_that_nests_its_answer_too_deeply_gives_no_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    deep = b'{"a":' + b"[" * 3000 + b"]" * 3000 + b',"issuer":"x"}'

    async def handler(heard: Heard) -> Response | None:
        if heard.path == "/mcp":
            return Response(status_code=401)
        if what == "token" and heard.path.startswith("/.well-known/"):
            here = f"http://{heard.headers['host']}"
            return JSONResponse({"issuer": here, "token_endpoint": f"{here}/token"})
        return Response(deep, media_type="application/json")

    with serving(Site(handler=handler)) as site:
        here = f"http://127.0.0.1:{site.port}"
        own: Json = {
            "clientId": "me",
            "clientSecret": "${SECRET}",
            "issuer": here,
            "grant": "client-credentials",
        }
        async with using(site, tmp_path, {"SECRET": "secret"}, oauth=own) as servers:
            with pytest.raises(DownstreamError):
                await text_of(servers, "echo")
    assert "authorization server" in caplog.text
    assert "defect" not in caplog.text


async def test_the_page_takes_the_state_of_this_login_only(site: Site) -> None:
    async def attack(url: str) -> None:
        there = httpx2.URL(httpx2.URL(url).params["redirect_uri"])
        async with httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as client:
            for query in ("", "?code=evil", "?code=evil&state=wrong"):
                answer = await client.get(f"{there}{query}")
                assert answer.status_code == 404
        await browse(url)

    login = await log_in("one", endpoint_of(site), None, attack)
    assert login.access_token.startswith("a-")


async def test_a_server_without_oauth_needs_no_login() -> None:
    with serving(Site()) as open_site, pytest.raises(LoginFailedError, match="wants no login"):
        await log_in("one", endpoint_of(open_site), None, browse)


async def test_a_token_endpoint_that_is_no_address_fails_the_call_alone(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    file = LoginFile(tmp_path, "one", site.url)
    file.write(a_login(site, authority))
    async with using(site, tmp_path) as servers:
        broken = {"token_endpoint": "http://[::1"}
        file.write(a_login(site, authority, **broken, expires_at=1.0))
        with pytest.raises(DownstreamError, match="names no address"):
            await text_of(servers, "echo")


async def test_an_authorization_server_chooses_no_codec_for_its_refusal() -> None:
    async def handler(heard: Heard) -> Response | None:
        here = refusing.url.removesuffix("/mcp")
        match heard.path.split("/")[1:]:
            case ["mcp"]:
                return Response(status_code=401)
            case [".well-known", "oauth-protected-resource", *_]:
                return JSONResponse({"resource": refusing.url, "authorization_servers": [here]})
            case [".well-known", *_]:
                places = ("authorization", "token", "registration")
                found = {f"{one}_endpoint": f"{here}/{one}" for one in places}
                more = {
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                }
                return JSONResponse({"issuer": here, **found, **more})
            case _:
                kind = {"content-type": "text/plain; charset=bz2"}
                return Response(bz2.compress(b"no"), status_code=400, headers=kind)

    refusing = Site(handler=handler)
    with serving(refusing), pytest.raises(LoginFailedError, match="Registration failed: 400"):
        await log_in("one", endpoint_of(refusing), None, browse)


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"code_challenge_methods_supported": None}, "does not say that it checks PKCE"),
        ({"code_challenge_methods_supported": []}, "does not say that it checks PKCE"),
        ({"code_challenge_methods_supported": ["plain"]}, "does not say that it checks PKCE"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "description can be used"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "description can be used"),
        ({"token_endpoint": None}, "description can be used"),
        ({"issuer": "x"}, "description can be used"),
        (None, "description can be used"),
    ],
    ids=["no PKCE", "no methods", "plain", "a script", "a file", "no tokens", "no issuer", "moved"],
)
async def test_nobody_logs_in_where_the_login_could_not_be_used(
    odd: dict[str, object] | None, words: str
) -> None:
    pages: list[str] = []

    async def show(url: str) -> None:
        pages.append(url)
        raise LoginFailedError("a page was shown")

    site = Site(handler=partial(authorizing, odd, {"access_token": "a"}))
    with serving(site), pytest.raises(LoginFailedError, match=words):
        await log_in("one", endpoint_of(site), None, show)
    assert pages == []


async def come_back(url: str) -> None:
    """What a browser does at once with the page of `authorizing`."""
    asked = httpx2.URL(url).params
    back = f"{asked['redirect_uri']}?code=c&state={asked['state']}"
    async with httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as client:
        await client.get(back)


@pytest.mark.parametrize("token", ["a\r\nX: y", "a b", "caf\xe9", "a\x00", "", "a" * 70_000])
@pytest.mark.parametrize("other", [{}, {"refresh_token": "r"}])
async def test_a_token_that_no_header_can_hold_is_no_login(token: str, other: Message) -> None:
    tokens = {"access_token": token, **other}
    if other:
        tokens = {"access_token": "a", "refresh_token": token}
    site = Site(handler=partial(authorizing, {}, tokens))
    with serving(site), pytest.raises(LoginFailedError, match="no header can hold"):
        await log_in("one", endpoint_of(site), None, come_back)


@pytest.mark.parametrize(
    "lifetime", [10**400, "9" * 400, 1.5, [1], True, "x"], ids=["huge", "long", *"abcd"]
)
async def test_an_odd_lifetime_of_a_token_ends_in_a_login_or_in_one_line(lifetime: Json) -> None:
    tokens: Message = {"access_token": "a", "expires_in": lifetime}
    site = Site(handler=partial(authorizing, {}, tokens))
    with serving(site), suppress(LoginFailedError):
        login = await log_in("one", endpoint_of(site), None, come_back)
        assert login.issuer


@pytest.mark.parametrize(
    ("sent", "is_reset"),
    [
        *((b"", True), (b"GET /", True), (b"GET //[ HTTP/1.1\r\n\r\n", False)),
        *((b"GET http://[::1/callback HTTP/1.1\r\n\r\n", False), (b"\x16\x03\x01\r\n\r\n", False)),
    ],
)
async def test_what_a_stranger_sends_to_the_page_of_a_login_does_not_end_it(
    sent: bytes, *, is_reset: bool
) -> None:
    async def show(url: str) -> None:
        back = urlsplit(httpx2.URL(url).params["redirect_uri"])
        async with await anyio.connect_tcp("127.0.0.1", back.port or 0) as stranger:
            await stranger.send(sent)
            if is_reset:
                raw = stranger.extra(SocketAttribute.raw_socket)  # noqa: S610  no query
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                with suppress(anyio.EndOfStream):
                    await stranger.receive()
        await come_back(url)

    site = Site(handler=partial(authorizing, {}, {"access_token": "a"}))
    with serving(site):
        login = await log_in("one", endpoint_of(site), None, show)
        assert login.issuer


async def test_a_lifetime_that_is_a_text_does_not_end_a_login(
    site: Site, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = a_login(site, authority, expires_at=1.0)
    LoginFile(tmp_path, "one", site.url).write(login)
    dumped = OAuthToken.model_dump_json

    def as_text(token: OAuthToken, *, exclude_none: bool = False) -> str:
        return dumped(token, exclude_none=exclude_none).replace(":3600", ':"3600"')

    monkeypatch.setattr(OAuthToken, "model_dump_json", as_text)
    async with using(site, tmp_path) as servers:
        assert await text_of(servers, "echo") == "done"
    now = LoginFile(tmp_path, "one", site.url).current()
    assert now is not None
    assert now.expires_at != login.expires_at


@pytest.mark.parametrize("odd", [{"token_type": "mac"}, {"token_type": None}, {"scope": [1]}])
async def test_why_a_login_failed_repeats_no_token_of_the_answer(odd: Message) -> None:
    tokens: Message = {"access_token": "sesame", "refresh_token": "sesame2", **odd}
    site = Site(handler=partial(authorizing, {}, tokens))
    with serving(site), pytest.raises(LoginFailedError) as failed:
        await log_in("one", endpoint_of(site), None, come_back)
    assert "sesame" not in str(failed.value)


async def test_a_token_in_an_answer_with_another_status_is_not_repeated() -> None:
    async def handler(heard: Heard) -> Response:
        found = await authorizing({}, {"access_token": "sesame"}, heard)
        return JSONResponse({"access_token": "sesame"}, 202) if heard.path == "/token" else found

    site = Site(handler=handler)
    with serving(site), pytest.raises(LoginFailedError, match="202") as failed:
        await log_in("one", endpoint_of(site), None, come_back)
    assert "sesame" not in str(failed.value)


@pytest.mark.parametrize("lifetime", [-5, 0, 20])
async def test_a_token_whose_lifetime_is_short_is_renewed_when_it_is_refused(
    site: Site, authority: Authority, tmp_path: Path, lifetime: int
) -> None:
    authority.lifetime = lifetime
    LoginFile(tmp_path, "one", site.url).write(a_login(site, authority, expires_at=1.0))
    async with using(site, tmp_path) as servers:
        assert await text_of(servers, "echo") == "done"
        assert authority.asked == ["refresh_token"]
        authority.tokens.clear()
        assert await text_of(servers, "echo") == "done"
    assert authority.asked == ["refresh_token"] * 2


async def test_an_endpoint_at_a_port_that_none_has_is_no_defect_of_the_proxy(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    nowhere = "http://127.0.0.1:99999/t"
    login = a_login(site, authority, expires_at=1.0, token_endpoint=nowhere)
    LoginFile(tmp_path, "one", site.url).write(login)
    async with using(site, tmp_path) as servers:
        assert "authorization server cannot be reached" in servers.status()["one"].error


async def authorizing(odd: dict[str, object] | None, tokens: Message, heard: Heard) -> Response:
    """A server with a login; the description of its authorization server is odd, or moved."""
    here = f"http://{heard.headers['host']}"
    match heard.path.split("/")[1:]:
        case ["mcp"]:
            return Response(status_code=401)
        case [".well-known", "oauth-protected-resource", *_]:
            found = {"resource": f"{here}/mcp", "authorization_servers": [here]}
            return JSONResponse(found)
        case [".well-known", *_]:
            places = ("authorization", "token", "registration")
            known = {f"{one}_endpoint": f"{here}/{one}" for one in places}
            methods = {"code_challenge_methods_supported": ["S256"]}
            kinds = {"response_types_supported": ["code"]}
            said = {"issuer": here, **known, **methods, **kinds, **(odd or {})}
            given = {key: one for key, one in said.items() if one is not None}
            moved = {"location": f"{here}/moved"} if odd is None else {}
            return JSONResponse(given, status_code=302 if odd is None else 200, headers=moved)
        case ["registration" | "register"]:
            client = {"client_id": "c", "redirect_uris": heard.body["redirect_uris"]}
            return JSONResponse({**client, "token_endpoint_auth_method": "none"}, status_code=201)
        case ["token"]:
            return JSONResponse({"token_type": "Bearer", **tokens})
        case _:
            return Response(status_code=404)


async def test_a_login_that_others_could_have_written_is_not_used(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    file = LoginFile(tmp_path, "one", site.url)
    file.write(a_login(site, authority))
    file.path.chmod(0o644)
    assert LoginFile(tmp_path, "one", site.url).current() is None
    file.path.write_text("{", "utf-8")
    file.path.chmod(0o600)
    assert LoginFile(tmp_path, "one", site.url).current() is None
    file.write(a_login(site, authority, url="https://elsewhere.example/mcp"))
    assert LoginFile(tmp_path, "one", site.url).current() is None


async def test_a_session_that_ends_meanwhile_keeps_the_token_that_was_asked_for(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    file = LoginFile(tmp_path, "one", site.url)
    file.write(a_login(site, authority))
    async with using(site, tmp_path) as servers:
        authority.tokens.clear()
        authority.may_give.clear()
        async with anyio.create_task_group() as calls:
            calls.start_soon(text_of, servers, "echo")
            await until(lambda: authority.asked)  # in another thread's loop
            calls.cancel_scope.cancel()
        authority.may_give.set()
    now = file.current()
    assert now is not None
    assert now.access_token in authority.tokens
    assert now.refresh_token in authority.refreshers


@pytest.mark.parametrize("is_logout", [True, False])
async def test_a_token_that_is_renewed_meanwhile_is_not_written_over_what_a_person_did(
    site: Site, authority: Authority, tmp_path: Path, is_logout: bool
) -> None:
    file = LoginFile(tmp_path, "one", site.url)
    file.write(a_login(site, authority))
    new = None if is_logout else a_login(site, authority)
    async with using(site, tmp_path) as servers:
        authority.tokens.pop(file.current().access_token)  # type: ignore[union-attr]
        authority.may_give.clear()

        async def call() -> None:
            with suppress(DownstreamError):  # it may meet the logout
                await text_of(servers, "echo")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: authority.asked)  # in another thread's loop
            tasks.start_soon(file.put, new)
            await wait_all_tasks_blocked()
            authority.may_give.set()
    assert LoginFile(tmp_path, "one", site.url).current() == new


def test_what_a_process_left_that_was_killed_while_it_kept_a_login_is_cleared_away(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    """It is a token that works, beside the login, under a name that nobody looked for."""
    login = a_login(site, authority)
    file = LoginFile(tmp_path, "one", site.url)
    file.write(login)
    if (child := os.fork()) == 0:
        Path.replace = lambda *_: os._exit(9)  # type: ignore[method-assign]
        file.write(replace(login, access_token="left"))  # noqa: S106  no secret
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [one for one in tmp_path.iterdir() if "left" in one.read_text()]
    assert file.current() == login
    file.write(login)
    assert [one.name for one in tmp_path.iterdir()] == [file.path.name]


async def test_a_login_that_cannot_be_kept_is_used_by_who_has_it(
    site: Site, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LoginFile(tmp_path, "one", site.url).write(a_login(site, authority))

    def full(path: Path, data: bytes, *, locked: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with using(site, tmp_path) as servers:
        authority.tokens.clear()
        monkeypatch.setattr(logins, "write_whole", full)
        # The stream of the session may be the first that needs another token, and be told.
        try:
            await text_of(servers, "echo")
        except DownstreamError as error:
            assert "cannot be kept" in str(error)  # noqa: PT017  it may not be raised
        assert await text_of(servers, "echo") == "done"
    assert authority.asked == ["refresh_token"]
