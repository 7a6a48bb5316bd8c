"""The page of all machines: a real login, a real database, and no way to approve."""

import re
import resource
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import orjson
import psycopg
import pytest

from tests.e2e.raw_client import at
from tests.fakes import NO_TLS
from tests.fleet.conftest import Machine
from tests.fleet.pages import SECRET, Pages, logged_in, opened, person, provider
from tests.fleet.test_relay import asks, the_only
from tests.program import PATIENCE, PROXY, ROOT, free_port, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def known() -> Iterator[tuple[int, str]]:
    """The port of a page, and the provider of logins that knows it."""
    pytest.importorskip("joserfc", reason="the extra desk is not installed: scripts/setup")
    if not (ROOT / "node_modules/oidc-provider").is_dir():
        pytest.skip("oidc-provider is not installed: npm ci")
    port = free_port()
    with ExitStack() as stack:
        yield port, provider(stack, f"http://localhost:{port}/callback", SECRET)


@pytest.fixture
def pages(machine: Machine, tmp_path: Path, known: tuple[int, str]) -> Iterator[Pages]:
    with ExitStack() as stack:
        yield Pages(machine.url, tmp_path, stack, known=known)


def shown(port: int, pages: Pages, key: dict[str, str]) -> list[dict[str, object]]:
    host = {"Host": urlsplit(pages.origin).netloc, **key}
    where = f"http://127.0.0.1:{port}/api/questions"
    with person() as browser, browser.stream("GET", where, headers=host) as answer:
        assert answer.status_code == 200, answer.read()
        return list(orjson.loads(next(answer.iter_lines()))["questions"])


def test_who_has_logged_in_sees_the_questions_at_any_copy(machine: Machine, pages: Pages) -> None:
    ada = machine.joins("ada")
    machine.relay()
    agent = machine.installation.start()
    call = asks(agent)
    identifier = the_only(machine)["id"]
    with person() as browser:
        key = opened(browser, pages)
    for port in pages.ports:
        wait_until(lambda port=port: shown(port, pages, key), "the page shows nothing")  # type: ignore[misc]
        (one,) = shown(port, pages, key)
        assert one["id"] == identifier
        assert "it needs 1 signature" in str(one["objection"])
    pages.copies[0].kill()
    pages.copies[0].wait()
    assert [one["id"] for one in shown(pages.ports[1], pages, key)] == [identifier]
    done = machine.there("approve", str(identifier), "--key", str(ada))
    assert done.returncode == 0, done.stderr
    assert "isError" not in agent.result(call)
    wait_until(lambda: shown(pages.ports[1], pages, key) == [], "an answered question stays")


def test_nobody_sees_or_answers_without_a_login_of_their_own_browser(pages: Pages) -> None:
    with person() as ada, person() as eve:
        begun = ada.get(f"{pages.origin}/").headers["location"]
        state = re.search(r"state=([^&]+)", begun)
        assert state is not None
        table: tuple[tuple[str, str, dict[str, str], int], ...] = (
            ("GET", "/api/questions", {}, 401),
            ("GET", "/api/questions", {"Authorization": "Bearer x"}, 401),
            ("GET", f"/callback?state={state[1]}&code=stolen", {}, 403),
            ("GET", "/callback", {}, 403),
            ("GET", "/page", {"Host": "elsewhere.example.com"}, 421),
            ("POST", "/api/page", {"Origin": "https://elsewhere.example.com"}, 403),
            ("POST", "/api/answers", {}, 401),
            ("POST", "/api/passkey", {}, 401),
            ("POST", "/api/logout", {"Authorization": "Bearer x"}, 200),
        )
        found = [eve.request(how, pages.origin + at, headers=has) for how, at, has, _ in table]
        wanted = [status for *_, status in table]
        assert [answer.status_code for answer in found] == wanted
        key = opened(ada, pages)
        assert ada.post(f"{pages.origin}/api/answers", headers=key, json={}).status_code == 409
    with psycopg.connect(pages._url) as connection:
        words = connection.execute("SELECT word FROM ironcurtain_logins").fetchall()
    for (word,) in words:
        stolen = {"Authorization": f"Bearer {word}"}
        with person() as eve:
            assert eve.get(f"{pages.origin}/api/questions", headers=stolen).status_code == 401
    # A login that was only begun has no row.
    assert len(words) == 1
    assert shown(pages.ports[1], pages, key) == []
    where = f"{pages.origin}/api/questions"
    with person() as ada, ada.stream("GET", where, headers=key) as open_page:
        lines = open_page.iter_lines()
        next(lines)
        ended = ada.post(f"{pages.origin}/api/logout", headers=key, json={}).json()
        assert urlsplit(ended["elsewhere"]).path == "/session/end"
        assert len(list(lines)) < 10, "the page is still open"
    for port in pages.ports:
        host = {"Host": urlsplit(pages.origin).netloc, **key}
        with person() as ada:
            gone = ada.get(f"http://127.0.0.1:{port}/api/questions", headers=host)
        assert gone.status_code == 401


def test_a_provider_that_does_not_answer_holds_few_logins_and_nobody_else(pages: Pages) -> None:
    with person() as browser:
        key = opened(browser, pages)
    port, host = free_port(), {"Host": urlsplit(pages.origin).netloc}
    page = f"http://127.0.0.1:{port}"
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent, ExitStack() as stack:
        pages.issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        pages.start(port)
        persons = stack.enter_context(ThreadPoolExecutor(60))
        for _ in range(60):
            persons.submit(httpx.get, f"{page}/", headers=host, timeout=PATIENCE, verify=NO_TLS)
        held = [stack.enter_context(silent.accept()[0]) for _ in range(4)]
        answer = httpx.post(
            f"{page}/api/answers", headers={**host, **key}, json={}, timeout=PATIENCE, verify=NO_TLS
        )
        assert answer.status_code == 409
        silent.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                held.append(stack.enter_context(silent.accept()[0]))
        silent.close()
        # One whose login was given up has hung up.
        assert len([one for one in held if not is_ended(one)]) <= 4


def test_the_page_opens_as_many_files_as_it_may_and_knows_how_browsers_name_it(
    postgres_url: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    argv = [
        "prlimit", "--nofile=300:2000", *PROXY, "desk", "--database", postgres_url,
        "--port", str(free_port()), "--url", "https://Questions.example.com:443/", "--issuer", "https://login.example.com",
        "--client", "page", "--secret-file", str(secret),
    ]  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as desk:
        assert desk.stdout is not None
        said, files = desk.stdout.readline(), resource.prlimit(desk.pid, resource.RLIMIT_NOFILE)
        desk.terminate()
    assert said.startswith("https://questions.example.com/ shows")
    assert files == (2000, 2000)


def test_a_body_that_ends_early_leaves_no_traceback(pages: Pages, tmp_path: Path) -> None:
    host = urlsplit(pages.origin).netloc
    head = f"POST /api/page HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n{{"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", pages.ports[0])) as stranger:
            stranger.sendall(head.encode())
    with person() as browser:
        assert browser.post(f"{pages.origin}/api/page", json={}).status_code == 403
    pages.copies[0].terminate()
    pages.copies[0].wait()
    assert "Traceback" not in (tmp_path / "desk.log").read_text()


def is_ended(one: socket.socket) -> bool:
    """Return whether the other end hung up; it has sent its one request."""
    one.setblocking(False)
    try:
        while one.recv(4096):
            pass
    except BlockingIOError:
        return False
    return True


@pytest.fixture
def browser_page() -> Iterator["Page"]:
    """A page of Chromium, which has an authenticator of its own, whose owner is verified."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        device = page.context.new_cdp_session(page)
        device.send("WebAuthn.enable")
        about = {
            "protocol": "ctap2", "transport": "internal", "hasResidentKey": True,
            "hasUserVerification": True, "isUserVerified": True,
            "automaticPresenceSimulation": True,
        }  # fmt: skip
        device.send("WebAuthn.addVirtualAuthenticator", {"options": about})
        yield page
        browser.close()


def approved(page: "Page", told: str) -> None:
    """Press "approve". What came up just now is not answered."""
    page.locator("#approve:enabled").wait_for()
    page.evaluate(
        "() => new Promise((done) => setTimeout(done, state.readyAt - performance.now()))"
    )
    page.locator("#approve").click()
    page.get_by_text(told).wait_for()


def logs_out(page: "Page", pages: Pages) -> None:
    while True:  # a database that is too busy for an answer is one that is away
        with page.expect_response("**/api/logout") as answer:
            page.get_by_role("button", name="Log out ada").click()
        if answer.value.ok:
            break
    # The provider's first page sends its form by itself, so only the last one is sure to be seen.
    page.wait_for_url(f"{pages.issuer}/session/end/success*")


def test_a_person_signs_with_a_passkey_in_the_browser(
    machine: Machine, pages: Pages, browser_page: "Page"
) -> None:
    page = browser_page
    machine.joins("bob")
    machine.relay()
    with person() as browser:
        page.goto(logged_in(browser, pages))
    page.get_by_role("button", name="Make a passkey").click()
    page.locator("#call[open]").wait_for()
    line = page.locator("#lines").inner_text().splitlines()[-1]
    assert line.startswith(f"webauthn {pages.origin} ")
    page.keyboard.press("Escape")
    file = machine.installation.root / "ada.passkey"
    file.write_text(f"{line} ada's phone\n")
    agent = machine.installation.start()
    call = asks(agent)
    # Nobody has named the key yet: the machine does not accept it, and the call waits.
    approved(page, "its machine does not accept it")
    done = machine.run("reviewers", "add", "ada", str(file), "--risk", "critical")
    assert done.returncode == 0, done.stderr
    approved(page, "signed (1 signature needed)")
    assert "isError" not in agent.result(call)
    outcome = machine.installation.outcomes()[-1]
    assert outcome["decidedBy"] == "signed:ada"
    assert "webauthn.get" in str(at(outcome["signatures"], 0, "clientData"))
    logs_out(page, pages)
    page.goto(f"{pages.origin}/page")
    page.locator("#link").get_by_text("You are not logged in").wait_for()
