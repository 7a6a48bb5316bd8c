"""Nobody logs in by a token that the provider did not give to this login at this page."""

import hmac
import json  # noqa: TID251  writes half a character, as providers do
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import closing
from typing import cast
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx
import orjson
import pytest
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.testclient import TestClient

pytest.importorskip("joserfc", reason="the extra desk is not installed: scripts/setup")

from joserfc import jws
from joserfc.jwk import ECKey, KeySet

from ironcurtain_proxy.fleet.database import FleetDatabase, ShownQuestion, _read
from ironcurtain_proxy.fleet.desk import Desk
from ironcurtain_proxy.fleet.logins import (
    Account,
    LoginError,
    LoginProvider,
    Logins,
    Words,
    digest_of,
)
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, this_process, utc_now
from ironcurtain_proxy.mailbox.messages import request_bytes
from ironcurtain_proxy.signing import base64_of
from tests.program import PATIENCE
from tests.questions import a_question
from tests.signed_answers import needing

ISSUER, CLIENT = "https://login.example.com", "page"
KEY = ECKey.generate_key("P-256", {"kid": "one"})
OTHER = ECKey.generate_key("P-256", {"kid": "one"})
PUBLIC = KeySet([KEY]).as_dict(private=False)


TIMES = ("exp", "iat", "nbf")


class Kept(Words):
    """Words in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Account] = {}

    def give(self, kind: str, who: Account, seconds: int) -> str:
        word = f"{kind}-{len(self.kept)}-{seconds}"
        self.kept[kind, word] = who
        return word

    def take(self, kind: str, word: str) -> Account | None:
        return self.kept.pop((kind, word), None)

    def said(self, kind: str, word: str) -> Account | None:
        return self.kept.get((kind, word))


class Provider:
    """Gives tokens as a test wants them."""

    def __init__(self, sees: tuple[tuple[str, str], ...] = (), claim: str = "groups") -> None:
        self.token = ""
        self.keys: object = PUBLIC
        self.logins = Logins(Kept(), LoginProvider(
            issuer=ISSUER, client=CLIENT, secret="s",  # noqa: S106  nobody's
            callback="https://page.example.com/callback", sees=sees, claim=claim,
        ))  # fmt: skip
        self.logins._client = httpx.Client(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            return httpx.Response(200, json={"id_token": self.token})
        if request.url.path == "/keys":
            return httpx.Response(200, json=self.keys)
        found = {
            "issuer": ISSUER, "authorization_endpoint": f"{ISSUER}/login",
            "token_endpoint": f"{ISSUER}/token", "jwks_uri": f"{ISSUER}/keys",
        }  # fmt: skip
        return httpx.Response(200, json=found)

    def logs_in(
        self, change: Mapping[str, object], header: Mapping[str, object] | None = None,
        key: ECKey | bytes = KEY,
    ) -> str:  # fmt: skip
        """Log in with a token of changed claims. `None` leaves one out; a time is from now."""
        address, browser = self.logins.begin()
        asked = parse_qs(urlsplit(address).query)
        now = int(utc_now().timestamp())
        claims = {
            "iss": ISSUER, "aud": CLIENT, "sub": "ada", "nonce": asked["nonce"][0],
            "exp": 60, "iat": 0, **change,
        }  # fmt: skip
        for name in TIMES:
            if isinstance(one := claims.get(name), int):
                claims[name] = now + one
        said = {name: value for name, value in claims.items() if value is not None}
        how = {"alg": "ES256", "kid": "one", **(header or {})}
        if isinstance(key, bytes):
            plain = ".".join([base64_of(orjson.dumps(one)) for one in (how, said)])
            mark = hmac.digest(key, plain.encode(), "sha256") if key else b""
            self.token = f"{plain}.{base64_of(mark)}"
        else:
            self.token = jws.serialize_compact(how, json.dumps(said).encode(), key)
        return self.logins.end(asked["state"][0], "code", browser)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"aud": [CLIENT]},
        {"aud": ["another", CLIENT], "azp": CLIENT},
        {"iat": 90, "nbf": 90},
        {"exp": -90},
    ],
    ids=["plain", "a list", "several", "a clock behind", "a clock ahead"],
)
def test_a_token_of_this_login_counts_also_where_clocks_differ_a_little(
    change: dict[str, object],
) -> None:
    provider = Provider()
    found = provider.logins.open_page(provider.logs_in(change))
    assert found is not None
    key, who = found
    assert provider.logins.account(key) == who == Account(id="ada", name="ada")
    provider.logins.close_page(key)
    assert provider.logins.account(key) is None


REFUSED: dict[str, dict[str, object]] = {
    "another audience": {"aud": "another"},
    "other audiences": {"aud": ["another", "third"]},
    "no audience": {"aud": None},
    "given to another": {"aud": ["another", CLIENT], "azp": "another"},
    "another issuer": {"iss": f"{ISSUER}/"},
    "another login": {"nonce": "of an earlier login"},
    "no login": {"nonce": None},
    "ended": {"exp": -600},
    "without end": {"exp": None},
    "an end in words": {"exp": "tomorrow"},
    "of tomorrow": {"iat": 3600},
    "not yet": {"nbf": 3600},
    "nobody": {"sub": None},
    "an empty name": {"sub": ""},
    "a name that is a number": {"sub": 7},
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_token_that_says_something_else_is_refused(kind: str) -> None:
    with pytest.raises(LoginError, match="does not confirm"):
        Provider().logs_in(REFUSED[kind])


FORGED: dict[str, tuple[dict[str, object], ECKey | bytes]] = {
    "signed by nobody": ({"alg": "none"}, b""),
    "signed with the public key as a password": ({"alg": "HS256"}, KEY.as_pem(private=False)),
    "another key under its name": ({}, OTHER),
    "another name": ({"kid": "two"}, OTHER),
    "a path in the name": ({"kid": "../../dev/null"}, OTHER),
    "a key of its own": ({"kid": "two", "jwk": OTHER.as_dict(private=False)}, OTHER),
    "an address of keys": ({"kid": "two", "jku": "https://evil.example.com/keys"}, OTHER),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_token_that_the_provider_did_not_sign_is_refused(kind: str) -> None:
    header, key = FORGED[kind]
    with pytest.raises(LoginError, match="does not confirm"):
        Provider().logs_in({}, header, key)


@pytest.mark.parametrize("keys", [[], "x", None, {}, {"keys": 5}, {"keys": [{"kty": "RSA"}]}])
def test_keys_that_cannot_be_read_let_nobody_in(keys: object) -> None:
    provider = Provider()
    provider.keys = keys
    with pytest.raises(LoginError, match="does not confirm"):
        provider.logs_in({})


SEES = (("pay-*", "payments"), ("web-1", "payments"), ("*", "security"))
GROUPS: dict[str, tuple[object, tuple[str, ...]]] = {
    "one of them": (["payments", "staff"], ("pay-*", "web-1")),
    "all of them": (["security", "payments"], ("pay-*", "web-1", "*")),
    "none of them": (["staff"], ()),
    "no groups": (None, ()),
    "a name like one": (["Payments", "payments ", "pay*"], ()),
    "a text": ("payments", ()),
    "other values": ([["payments"], 7, None], ()),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_a_person_sees_what_the_groups_of_the_account_see_and_nothing_without(kind: str) -> None:
    said, machines = GROUPS[kind]
    provider = Provider(SEES, "roles")
    change = {"roles": said, "groups": ["security"], "email": "ada@example.com"}
    if not machines:
        with pytest.raises(LoginError, match="in no group"):
            provider.logs_in(change)
        return
    found = provider.logins.open_page(provider.logs_in(change))
    assert found is not None
    assert provider.logins.machines(found[1]) == machines
    assert found[1].name == "ada@example.com"
    # Groups count as they are configured now, whenever the person logged in.
    assert Provider((("*", "admins"),)).logins.machines(found[1]) == ()


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "a\u202eb"])
def test_a_name_that_no_database_takes_keeps_nobody_out(postgres_url: str, name: str) -> None:
    provider = Provider(SEES)
    with closing(FleetDatabase(postgres_url)) as database:
        database.prepare()
        provider.logins._words = Words(database)
        change = {"sub": name, "name": name, "groups": ["payments", name]}
        found = provider.logins.open_page(provider.logs_in(change))
        assert found is not None
        assert found[1].groups == ("payments",)
        assert found[1].name.isprintable()
        assert provider.logins.account(found[0]) == found[1]


@pytest.mark.anyio
async def test_open_pages_leave_files_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _what: (130, 130))
    provider = Provider()
    ticket = provider.logins.open_page(provider.logs_in({}))
    assert ticket is not None
    desk = desk_of(provider)
    await desk._show([waiting(1, "m")], "")
    headers = [(b"authorization", b"Bearer " + ticket[0].encode())]

    async def opened() -> AsyncGenerator[bytes]:
        answer = await desk._questions(Request({"type": "http", "headers": headers}))
        assert isinstance(answer, StreamingResponse)
        page = cast("AsyncGenerator[bytes]", answer.body_iterator)
        await anext(page)
        return page

    pages = [await opened(), await opened()]
    with pytest.raises(HTTPException, match="too many pages are open"):
        await opened()
    await pages[0].aclose()
    await opened()


def test_a_login_ends_once_and_in_its_own_browser() -> None:
    provider = Provider()
    ticket = provider.logs_in({})
    assert provider.logins.open_page(ticket)
    assert provider.logins.open_page(ticket) is None
    kept = dict(provider.logins._words.kept)  # type: ignore[attr-defined]
    address, browser = provider.logins.begin()
    state = parse_qs(urlsplit(address).query)["state"][0]
    for other in ("another browser", "", "\udcff", state):
        with pytest.raises(LoginError, match="not begun in this browser"):
            provider.logins.end(state, "code", other)
    with pytest.raises(LoginError, match="not begun in this browser"):
        provider.logins.end("", "code", browser)
    assert provider.logins._words.kept == kept  # type: ignore[attr-defined]


def desk_of(provider: Provider, origin: str = "https://page.example.com") -> Desk:
    """A copy of the page without a database."""
    provider.logins.pages = set
    return Desk(FleetDatabase("postgresql://nobody@localhost/none"), provider.logins, origin, print)


def waiting(number: int, host: str) -> PendingRequest:
    """A question of a machine, as a copy of the page has read it."""
    asked = utc_now()
    question = a_question(identifier=f"7db5443e-0000-4000-8000-00000000000{number}")
    one = replace(question, signing=needing(1), created=asked)
    raw = request_bytes(replace(one, deadline=asked.replace(year=2100)), this_process())
    raw = orjson.dumps({**orjson.loads(raw), "host": host})
    shown = _read(ShownQuestion(one.id, "what the row says", raw), asked)
    assert shown is not None
    return shown


@pytest.mark.anyio
async def test_a_page_is_sent_what_changed_alone_also_where_it_missed_a_change() -> None:
    desk, one, two, three = desk_of(Provider()), *[waiting(number, "m") for number in (1, 2, 3)]
    desk._pages = {digest_of("key")}
    quick, slow = (desk._lines("key", ("*",)) for _ in range(2))

    async def sent(page: AsyncIterator[bytes]) -> tuple[list[str], list[str] | None]:
        said = orjson.loads(await anext(page))
        return [one["id"] for one in said["questions"]], said.get("gone")

    await desk._show([one], "")
    assert await sent(quick) == await sent(slow) == ([one.id], None)
    await desk._show([one, two], "")
    assert await sent(quick) == ([two.id], [])
    await desk._show([two, three], "")
    assert await sent(quick) == ([three.id], [one.id])
    assert await sent(slow) == ([two.id, three.id], [one.id])
    # What thousands of pages are sent is written once.
    assert desk._line(("*",), 1, [one]) is desk._line(("*",), 1, [one])
    found: list[tuple[list[str], list[str] | None]] = []

    async def keep(page: AsyncIterator[bytes]) -> None:
        found.append(await sent(page))

    async with anyio.create_task_group() as tasks:
        for page in (quick, slow):
            tasks.start_soon(keep, page)
        await anyio.wait_all_tasks_blocked()
        assert found == []
        await desk._show([three], "")
    assert found == [([], [two.id])] * 2
    await desk._show([], "the database is away")
    assert [line async for line in quick] == []


@pytest.mark.anyio
async def test_a_page_that_is_closed_while_the_open_ones_are_read_or_it_is_written_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = desk_of(Provider())
    await desk._show([waiting(1, "m")], "")
    reads, read = threading.Event(), threading.Event()

    def pages() -> set[str]:
        reads.set()
        read.wait(PATIENCE)
        return {digest_of("key")}

    monkeypatch.setattr(desk._logins, "pages", pages)
    monkeypatch.setattr(desk._logins, "close_page", lambda _key: None)
    monkeypatch.setattr(desk._logins, "account", lambda _key: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk._read_pages)
        await anyio.to_thread.run_sync(reads.wait)
        desk._pages.add(digest_of("key"))
        page = desk._lines("key", ("*",))
        await anext(page)
        # It does not wait yet: what was sent is still being written.
        request = Request({"type": "http", "headers": [(b"authorization", b"Bearer key")]})
        await desk._close(request)
        read.set()
    assert [line async for line in page] == []
    assert desk._pages == set()


def test_pages_that_come_back_ask_nothing_of_a_database_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, asked = desk_of(Provider()), list[str]()
    monkeypatch.setattr(desk._logins, "account", asked.append)
    page = TestClient(desk.app(), "https://page.example.com")  # not entered: nothing is read
    for where in ("questions", "answers"):
        how = page.get if where == "questions" else page.post
        answer = how(f"/api/{where}", headers={"Authorization": "Bearer x"})
        assert (answer.status_code, asked) == (503, [])
        assert answer.json() == {"problem": "the database has not been read yet"}


def test_nobody_sees_or_answers_questions_of_machines_that_others_see() -> None:
    provider = Provider(SEES)
    desk = desk_of(provider)
    desk._waiting = [waiting(*one) for one in enumerate(("web-1", "pay-1", "pay-2"))]
    desk._problem = ""
    page = TestClient(desk.app(), "https://page.example.com")  # not entered: nothing is read
    for groups, sees in ((["payments"], {"web-1", "pay-1", "pay-2"}), (["ops"], {"web-1"})):
        provider.logins._provider = replace(
            provider.logins._provider, sees=(*SEES, ("web-?", "ops"))
        )
        opened = page.post("/api/page", json={"ticket": provider.logs_in({"groups": groups})})
        key = {"Authorization": f"Bearer {opened.json()['key']}"}
        for each in desk._waiting:
            about = {"id": each.id, "digest": each.request.digest, "approve": True}
            answer = page.post("/api/answers", json=about, headers=key)
            assert answer.status_code == (200 if each.directory.name in sees else 409)
        seen = provider.logins.machines(Account(id="", name="", groups=(*groups,)))
        line = desk._line(seen, 0, ())
        assert line.count(b'"headline"') == len(sees)


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_the_cookie_of_a_login_is_of_this_host_alone_where_there_is_tls(scheme: str) -> None:
    provider = Provider()
    origin = f"{scheme}://page.example.com"
    provider.logins._provider = replace(provider.logins._provider, callback=f"{origin}/callback")
    page = TestClient(desk_of(provider, origin).app(), origin)
    answer = page.get("/", follow_redirects=False)
    name, _, how = answer.headers["set-cookie"].partition("=")
    assert name == ("__Host-login" if scheme == "https" else "login")
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= set(how.split("; "))
    assert ("Secure" in how, "Domain" in how) == (scheme == "https", False)
