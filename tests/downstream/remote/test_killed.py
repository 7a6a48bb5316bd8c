"""A proxy that is killed while it renews a login: the token is kept, and none is shown twice."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ironcurtain_proxy.downstream.remote import logins, renewal
from ironcurtain_proxy.downstream.remote.logins import LoginFile
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.private_files import locked_file
from tests import program
from tests.downstream.remote.authorization import Authority, authority, guarded_site
from tests.downstream.remote.renewing import read_once, using
from tests.downstream.remote.site import Site, serving
from tests.downstream.remote.test_oauth import a_login
from tests.downstream.scripted_servers import text_of
from tests.program import until

__all__ = ["authority"]

pytestmark = pytest.mark.anyio


@pytest.fixture
def site(authority: Authority) -> Iterator[Site]:
    with serving(guarded_site(authority)) as found:
        found.tools = ["read"]
        yield found


async def a_killed_proxy(site: Site, path: Path, reached: Callable[[], object]) -> None:
    """Start a proxy, and kill it and its process group once something is reached."""
    proxy = program.start_here("tests.downstream.remote.renewing", site.url, str(path))
    proxy.stdin.write(b"\n")
    await until(reached)
    os.kill(proxy.pid, signal.SIGKILL)
    await anyio.to_thread.run_sync(proxy.wait)


@pytest.mark.parametrize("point", ["asked", "spent"])
async def test_the_token_that_was_asked_for_is_kept(
    site: Site, authority: Authority, tmp_path: Path, point: str
) -> None:
    file = LoginFile(tmp_path, "one", site.url)
    before = a_login(site, authority, expires_at=1.0)
    file.write(before)
    gate: threading.Event = authority.may_give if point == "asked" else authority.may_answer
    gate.clear()
    await a_killed_proxy(site, tmp_path, lambda: getattr(authority, point))
    assert file.current() == before
    gate.set()
    await until(lambda: file.current() != before)
    kept = file.current()
    assert kept is not None
    assert kept.refresh_token in authority.refreshers
    await read_once(site.url, tmp_path)
    assert authority.asked == ["refresh_token"]


async def test_another_proxy_waits_for_the_one_that_was_killed_and_reads_what_it_got(
    site: Site, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Showing the token again would end the login where a provider looks for that."""
    file = LoginFile(tmp_path, "one", site.url)
    file.write(a_login(site, authority, expires_at=1.0))
    authority.may_answer.clear()
    await a_killed_proxy(site, tmp_path, lambda: authority.spent)
    met: list[int | None] = []

    def locked(path: Path) -> int | None:
        met.append(locked_file(path))
        return met[-1]

    monkeypatch.setattr(logins, "locked_file", locked)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_once, site.url, tmp_path)
        await until(lambda: met)
        authority.may_answer.set()
    assert met[0] is None
    assert authority.asked == ["refresh_token"]


@pytest.mark.parametrize("program_of_it", ["", "print('{}x')", "import os; os.abort()"])
async def test_a_process_that_ends_without_an_answer_costs_no_login(
    site: Site,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program_of_it: str,
) -> None:
    file = LoginFile(tmp_path, "one", site.url)
    file.write(a_login(site, authority))
    async with using(site.url, tmp_path) as servers:
        authority.tokens.clear()
        with monkeypatch.context() as broken:
            broken.setattr(renewal, "_PROGRAM", program_of_it)
            with pytest.raises(DownstreamError, match="was ended"):
                await text_of(servers, "read")
        assert await text_of(servers, "read") == "done"


async def test_a_process_that_gets_no_answer_is_ended(
    site: Site, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = LoginFile(tmp_path, "one", site.url)
    file.write(a_login(site, authority))
    async with using(site.url, tmp_path) as servers:
        authority.tokens.clear()
        authority.may_give.clear()
        monkeypatch.setattr(renewal, "_PATIENCE", 0.2)
        with pytest.raises(DownstreamError, match="was ended"):
            await text_of(servers, "read")
        async with file.locked():
            pass  # nobody has it
        authority.may_give.set()
