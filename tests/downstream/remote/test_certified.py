"""Logins with an authorization server that is no code of ours, nor of the SDK's."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.downstream.remote.browser_login import log_in
from ironcurtain_proxy.downstream.remote.logins import LoginFile
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.server import RemoteEndpoint
from tests import program
from tests.downstream.remote.authorization import browse
from tests.downstream.remote.certified import Certified, a_certified_authority
from tests.downstream.remote.renewing import read_once, using
from tests.downstream.remote.site import HERE, Site, remote, serving
from tests.downstream.scripted_servers import text_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def authority() -> Iterator[Certified]:
    with a_certified_authority() as found:
        yield found


@pytest.fixture
def site(authority: Certified) -> Iterator[Site]:
    with serving(authority.site()) as found:
        yield found


def _waiting(url: str, path: Path) -> program.Forked:
    """A process that has imported everything, and waits for a line."""
    process = program.start_here("tests.downstream.remote.renewing", url, str(path))
    assert process.stdout.readline() == b"ready\n"
    return process


async def logged_in(site: Site, path: Path, scope: str | None = None) -> LoginFile:
    endpoint = remote(site.url, addresses=HERE).remote
    assert isinstance(endpoint, RemoteEndpoint)
    file = LoginFile(path, "one", site.url)
    file.write(await log_in("one", endpoint, None, browse, scope=scope))
    return file


async def test_a_person_logs_in_and_the_token_is_renewed(
    site: Site, authority: Certified, tmp_path: Path
) -> None:
    file = await logged_in(site, tmp_path)
    first = file.current()
    assert first is not None
    assert await authority.scopes_of(first.access_token) == {"notes:read"}
    file.write(replace(first, expires_at=1.0))
    await read_once(site.url, tmp_path)
    second = file.current()
    assert second is not None
    assert (second.access_token, second.refresh_token) != (first.access_token, first.refresh_token)
    assert second.refresh_token != first.refresh_token, "it rotates"


async def test_processes_that_renew_at_once_show_no_token_twice(
    site: Site, authority: Certified, tmp_path: Path
) -> None:
    """A refresh token that is shown twice ends the grant, and with it all its tokens."""
    file = await logged_in(site, tmp_path)
    login = file.current()
    assert login is not None
    file.write(replace(login, expires_at=1.0))
    proxies = [_waiting(site.url, tmp_path) for _ in range(4)]
    for proxy in proxies:
        proxy.stdin.write(b"\n")
    assert [await anyio.to_thread.run_sync(proxy.wait) for proxy in proxies] == [0] * 4
    now = file.current()
    assert now is not None
    assert await authority.scopes_of(now.access_token) == {"notes:read"}
    file.write(replace(now, expires_at=1.0))
    await read_once(site.url, tmp_path)


async def test_a_login_gets_the_rights_that_a_server_wanted_besides(
    site: Site, authority: Certified, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = await logged_in(site, tmp_path)
    before = file.current()
    assert before is not None
    async with using(site.url, tmp_path) as servers:
        with pytest.raises(DownstreamError, match="wants a login") as raised:
            await text_of(servers, "write")
        assert "notes" not in str(raised.value)
        assert "(notes:write): ironcurtain-proxy login one" in caplog.text
        lacking = file.current()
        assert lacking is not None
        assert lacking.refresh_token == before.refresh_token, "a new token would lack the same"
        assert set(str(lacking.wanted_scope).split()) == {"notes:read", "notes:write"}
        await logged_in(site, tmp_path, lacking.wanted_scope)
        assert await text_of(servers, "write") == "done"
    now = file.current()
    assert now is not None
    assert now.wanted_scope is None
    assert await authority.scopes_of(now.access_token) == {"notes:read", "notes:write"}
