"""Checks of every request, and security headers of every answer.

They stop these attacks: requests from a page of another origin (no key, wrong origin); DNS
rebinding (wrong host); a frame around the page; and words of an agent that become markup after all
(the content security policy allows only our script file).
"""

import secrets
from collections.abc import Iterable
from hmac import compare_digest
from typing import Final, Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BYTES = 32
_MOST_KEYS = 16
"""The most open pages; a further one closes the oldest."""


class Access:
    """The valid ticket, and the keys of open pages.

    A link holds its ticket after `#`, in the part of the address that a browser never sends. The
    page exchanges the ticket for a key, which only its tab keeps. The key is sent in a header and
    never as a cookie: browsers send cookies to every port of this machine, and with requests of
    other pages.
    """

    def __init__(self) -> None:
        self._ticket = secrets.token_urlsafe(_BYTES)
        self._keys: list[str] = []

    @property
    def ticket(self) -> str:
        """The ticket of the next link, for one use."""
        return self._ticket

    def open_page(self, ticket: str) -> str | None:
        """Exchange a ticket for the key of a page, or None if the ticket is invalid."""
        if not _is_same(ticket, self._ticket):
            return None
        self._ticket = secrets.token_urlsafe(_BYTES)
        key = secrets.token_urlsafe(_BYTES)
        self._keys = [*self._keys, key][-_MOST_KEYS:]
        return key

    def is_open(self, key: str) -> bool:
        """Return whether a key belongs to an open page."""
        return any(_is_same(key, one) for one in self._keys)


def _is_same(one: str, other: str) -> bool:
    return compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())


MAX_BODY: Final = 64 * 1024
_API: Final = "/api/"
_OPENING: Final = "/api/page"
"""The address that exchanges a ticket for a key: the only data address without a key."""
_NONE: Final = ""
_OWN: Final = "same-origin"
_FOREIGN: Final = "the request comes from another page"
_CLOSED: Final = "this page is closed: open the link that the command shows now"
_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("content-security-policy", _CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
)


class OpenPages(Protocol):
    """Knows the keys of open pages."""

    def is_open(self, key: str) -> bool:
        """Return whether a key belongs to an open page."""


class PageGuard:
    """Refuses requests that do not come from an open page of this server."""

    def __init__(self, app: ASGIApp, access: OpenPages, origins: Iterable[str]) -> None:
        """Wrap the page.

        Args:
            app: the application behind the guard.
            access: the tickets and keys.
            origins: the origins of the page, such as `http://127.0.0.1:8790`.
        """
        self._app = app
        self._access = access
        self._origins = frozenset(origins)
        self._hosts = frozenset(one.partition("://")[2] for one in self._origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS:
                    headers[name] = value
            await send(message)

        headers = Headers(scope=scope)
        status, problem = self._objection(scope, headers)
        if problem:
            await JSONResponse({"problem": problem}, status)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _objection(self, scope: Scope, headers: Headers) -> tuple[int, str]:
        """Return the status and text of a refusal; empty text: the request passes."""
        if headers.get("host", "") not in self._hosts:
            return 421, "this address is not the page's; --public-name names another"
        if headers.get("origin", _NONE) not in {_NONE, *self._origins}:
            return 403, _FOREIGN
        if not scope["path"].startswith(_API):
            return 200, ""
        if headers.get("sec-fetch-site", _OWN) != _OWN:
            return 403, _FOREIGN
        if _is_large(headers):
            return 413, "the request is too large"
        is_open = scope["path"] == _OPENING or self._has_key(headers)
        return (200, "") if is_open else (401, _CLOSED)

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._access.is_open(key)


def _is_large(headers: Headers) -> bool:
    length = headers.get("content-length", "0")
    stated = length.isdecimal() and "transfer-encoding" not in headers
    return not stated or int(length) > MAX_BODY
