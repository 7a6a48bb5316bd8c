"""Access to the page: one-time tickets in links, and keys of open pages.

A link holds its ticket after `#`, in the part of the address that a browser never sends. The page
exchanges the ticket for a key, which only its tab keeps. The key is sent in a header and never as a
cookie: browsers send cookies to every port of this machine, and with requests of other pages.
"""

import secrets
from hmac import compare_digest

_BYTES = 32
_MOST_KEYS = 16
"""The most open pages; a further one closes the oldest."""


class Access:
    """The valid ticket, and the keys of open pages."""

    def __init__(self) -> None:
        self._ticket = secrets.token_urlsafe(_BYTES)
        self._keys: list[str] = []

    @property
    def ticket(self) -> str:
        """The ticket of the next link, for one use."""
        return self._ticket

    def open_page(self, ticket: str) -> str | None:
        """Exchange a ticket for the key of a page; None: the ticket is invalid."""
        if not _is_same(ticket, self._ticket):
            return None
        self._ticket = secrets.token_urlsafe(_BYTES)
        key = secrets.token_urlsafe(_BYTES)
        self._keys = [*self._keys, key][-_MOST_KEYS:]
        return key

    def is_open(self, key: str) -> bool:
        """Whether a key belongs to an open page."""
        return any(_is_same(key, one) for one in self._keys)


def _is_same(one: str, other: str) -> bool:
    return compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())
