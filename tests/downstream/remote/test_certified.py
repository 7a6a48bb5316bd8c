"""Logins with an authorization server that is no code of ours, nor of the SDK's."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace as changed

from ironcurtain_proxy.downstream.remote.browser_login import log_in
from ironcurtain_proxy.downstream.remote.logins import LoginFile
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.remote import RemoteEndpoint
from tests.downstream.remote.authorization import browse
from tests.downstream.remote.certified import Certified, a_certified_authority
from tests.downstream.remote.site import Site, remote, serving
from tests.downstream.scripted_servers import OPTIONS, running, text_of

pytestmark = pytest.mark.anyio

HERE: list[Json] = ["127.0.0.1"]
RENEWING = """
import sys, anyio
from pathlib import Path
from tests.downstream.remote.test_certified import read_once
print("ready", flush=True)
sys.stdin.readline()
anyio.run(read_once, sys.argv[1], Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def authority() -> Iterator[Certified]:
    with a_certified_authority() as found:
        yield found


@pytest.fixture
def site(authority: Certified) -> Iterator[Site]:
    with serving(authority.site()) as found:
        yield found


@asynccontextmanager
async def using(url: str, path: Path) -> AsyncIterator[DownstreamServers]:
    spec = remote(url, addresses=HERE)
    async with running(spec, options=replace(OPTIONS, logins=path)) as servers:
        yield servers


async def read_once(url: str, path: Path) -> None:
    """What one proxy does with a login: start, and call."""
    async with using(url, path) as servers:
        assert await text_of(servers, "read") == "done"


def _waiting(command: list[str]) -> "subprocess.Popen[str]":
    """A process that has imported everything, and waits for a line."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
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
    file.write(changed(first, expires_at=1.0))
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
    file.write(changed(login, expires_at=1.0))
    command = [sys.executable, "-c", RENEWING, site.url, str(tmp_path)]
    proxies = [_waiting(command) for _ in range(4)]
    for proxy in proxies:
        assert proxy.stdin is not None
        proxy.stdin.write("\n")
        proxy.stdin.flush()
    for proxy in proxies:
        await anyio.to_thread.run_sync(proxy.communicate)
    assert [proxy.returncode for proxy in proxies] == [0] * 4
    now = file.current()
    assert now is not None
    assert await authority.scopes_of(now.access_token) == {"notes:read"}
    file.write(changed(now, expires_at=1.0))
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
