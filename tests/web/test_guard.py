"""Who may speak to the reviewer's page: over real HTTP, as an attacker's page would try."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from ironcurtain_proxy.audit.calls import CallHistory
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes
from ironcurtain_proxy.web.app import PageSources, ReviewPage
from ironcurtain_proxy.web.guard import Access, PageGuard
from tests.tables import table

pytestmark = pytest.mark.anyio
ORIGIN = "http://127.0.0.1:8790"


@asynccontextmanager
async def a_page(path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Access]]:
    """The page's application behind its guard, and a client at its address."""
    access, mailboxes = Access(), Mailboxes([path], None)
    page = ReviewPage(
        mailboxes,
        CallHistory(tuple, str),
        access,
        None,
        PageSources(opened=lambda: None, complain=lambda _: None),
    )
    app = page.app()
    transport = httpx.ASGITransport(PageGuard(app, access, [ORIGIN]))
    try:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client,
        ):
            yield client, access
    finally:
        mailboxes.stop_listening()


async def _open(client: httpx.AsyncClient, access: Access) -> dict[str, str]:
    answer = await client.post("/api/page", json={"ticket": access.ticket})
    return {"authorization": f"Bearer {answer.json()['key']}"}


async def test_a_link_opens_the_page_once(tmp_path: Path) -> None:
    async with a_page(tmp_path) as (client, access):
        ticket = access.ticket
        first = await client.post("/api/page", json={"ticket": ticket})
        second = await client.post("/api/page", json={"ticket": ticket})
        assert (first.status_code, second.status_code) == (200, 403)
        assert "used already" in second.json()["problem"]
        assert access.ticket != ticket
        nobody = await client.post("/api/page", json={"ticket": None})
        assert nobody.status_code == 403


async def test_data_needs_the_key_of_an_open_page(tmp_path: Path) -> None:
    async with a_page(tmp_path) as (client, access):
        for headers in ({}, {"authorization": "Bearer x"}, {"authorization": access.ticket}):
            for path in (
                "/api/questions",
                "/api/calls",
                "/api/call",
                "/api/day",
                "/api/rule",
                "/api/explanation",
            ):
                assert (await client.get(path, headers=headers)).status_code == 401
            assert (await client.post("/api/answers", headers=headers)).status_code == 401
        key = await _open(client, access)
        assert (await client.get("/api/calls", headers=key)).status_code == 200


async def test_the_oldest_of_many_pages_is_closed(tmp_path: Path) -> None:
    async with a_page(tmp_path) as (client, access):
        keys = [await _open(client, access) for _ in range(17)]
        codes = [(await client.get("/api/calls", headers=key)).status_code for key in keys]
        assert codes == [401, *[200] * 16]


@pytest.mark.parametrize(
    ("headers", "status"),
    table("web/guard.what_another_page_sends_is_refused", list[tuple[dict[str, str], int]]),
)
async def test_what_another_page_sends_is_refused_even_with_a_key(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with a_page(tmp_path) as (client, access):
        key = await _open(client, access)
        answer = await client.post("/api/answers", content=b"{}", headers={**key, **headers})
        assert answer.status_code == status


async def test_every_answer_forbids_scripts_of_others_and_frames(tmp_path: Path) -> None:
    async with a_page(tmp_path) as (client, _):
        for path in ("/", "/static/page.js", "/api/calls", "/nowhere"):
            headers = (await client.get(path)).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'")
            assert "frame-ancestors 'none'" in policy
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
