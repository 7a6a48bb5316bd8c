"""Who may use the page: links that open it once, and keys of open pages. Pure but for randomness.

A link holds its ticket in the part of the address after `#`, which a browser sends nowhere. The
page trades the ticket for a key and keeps the key for its own tab. The key is sent in a header and
is never a cookie: a browser sends cookies to every port of this machine, and with requests that
other pages make.
"""

import secrets
from hmac import compare_digest

_BYTES = 32
_MOST_KEYS = 16
"""Pages that are open at once; a further one closes the oldest."""


class Access:
    """The one ticket that is valid, and the keys of open pages."""

    def __init__(self) -> None:
        self._ticket = secrets.token_urlsafe(_BYTES)
        self._keys: list[str] = []

    @property
    def ticket(self) -> str:
        """The ticket of the next link. It can be used once."""
        return self._ticket

    def open_page(self, ticket: str) -> str | None:
        """Trade a ticket for the key of a page; None: it is not the valid one."""
        if not _is_same(ticket, self._ticket):
            return None
        self._ticket = secrets.token_urlsafe(_BYTES)
        key = secrets.token_urlsafe(_BYTES)
        self._keys = [*self._keys, key][-_MOST_KEYS:]
        return key

    def is_open(self, key: str) -> bool:
        """Whether a key is that of an open page."""
        return any(_is_same(key, one) for one in self._keys)


def _is_same(one: str, other: str) -> bool:
    return compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())
