"""Copies of the page of all machines, and persons who log in to it."""

import os
import re
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx

from tests import program
from tests.fakes import NO_TLS
from tests.program import PATIENCE, PROXY, ROOT, free_port


def person(tls: ssl.SSLContext = NO_TLS) -> httpx.Client:
    """Return a person's browser. It leaves a connection before the page does, after 5 s."""
    return httpx.Client(verify=tls, timeout=PATIENCE, limits=httpx.Limits(keepalive_expiry=1))


SECRET = "a+secret of%20the/tests: x"  # noqa: S105  lets nobody in


def provider(stack: ExitStack, callback: str, secret: str) -> str:
    """Start a provider of logins that knows a page. Return its address."""
    argv = ["node", "tests/fleet/provider.mjs", callback, secret]
    running = stack.enter_context(
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    )
    stack.callback(running.terminate)
    assert running.stdout is not None
    return running.stdout.readline().decode().strip()


class Pages:
    """Two copies of the page, and the provider that lets people in.

    Args:
        url: the database.
        place: where the copies have their files.
        stack: ends all.
        origin: how browsers name the page; by default, that of the first copy.
        known: the port of the first copy, and a provider that knows a page at its origin.
    """

    def __init__(
        self,
        url: str,
        place: Path,
        stack: ExitStack,
        origin: str = "",
        known: tuple[int, str] | None = None,
    ) -> None:
        self._place = place
        self._url = url
        self._stack = stack
        first, self.issuer = known or (free_port(), "")
        self.ports = [first, free_port()]
        self.origin = origin or f"http://localhost:{first}"
        self.issuer = self.issuer or provider(stack, f"{self.origin}/callback", SECRET)
        self.copies = [self.start(port) for port in self.ports]

    def start(self, port: int) -> "program.Forked | subprocess.Popen[bytes]":
        secret = self._place / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        argv = [
            *PROXY, "desk", "--database", self._url, "--port", str(port), "--url", self.origin,
            "--issuer", self.issuer, "--client", "page", "--secret-file", str(secret),
        ]  # fmt: skip
        with (self._place / "desk.log").open("ab") as errors:
            copy = program.start(argv, {**os.environ, "HOME": str(self._place)}, errors, ROOT)
        self._stack.callback(lambda: (copy.kill(), copy.wait()))
        assert copy.stdout is not None
        assert copy.stdout.readline()
        return copy


def logged_in(browser: httpx.Client, pages: Pages) -> str:
    """Log in as a person does, page by page. Return the last address."""
    return logged_in_at(browser, f"{pages.origin}/", pages.origin)


def logged_in_at(browser: httpx.Client, page: str, origin: str, name: str = "ada") -> str:
    """Log in at one copy of a page, which browsers know under an origin."""

    def get(address: str) -> httpx.Response:
        if not address.startswith(f"{origin}/"):
            return browser.get(address)
        host = {"Host": urlsplit(origin).netloc}
        return browser.get(address.replace(f"{origin}/", page, 1), headers=host)

    answer = get(f"{origin}/")
    for _ in range(20):
        if answer.is_redirect:
            address = urljoin(str(answer.url), answer.headers["location"])
            if urlsplit(address).path == "/page":
                return address
            answer = get(address)
            continue
        form = re.search(r'<form[^>]*action="([^"]+)"', answer.text)
        assert form is not None, answer.text
        named = re.findall(r'name="prompt" value="(\w+)"', answer.text)
        given = {"prompt": named[0], "login": name, "password": "x"}
        answer = browser.post(urljoin(str(answer.url), form[1]), data=given)
    raise AssertionError(answer.text)


def opened(browser: httpx.Client, pages: Pages) -> dict[str, str]:
    ticket = logged_in(browser, pages).partition("#")[2]
    answer = browser.post(f"{pages.origin}/api/page", json={"ticket": ticket})
    again = browser.post(f"{pages.origin}/api/page", json={"ticket": ticket})
    assert (answer.status_code, again.status_code) == (200, 403)
    return {"Authorization": f"Bearer {answer.json()['key']}"}
