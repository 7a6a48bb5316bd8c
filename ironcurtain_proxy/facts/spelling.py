"""The absolute spelling of a path in an argument, or the reason why it has none.

This module handles text only: `~`, the container's name for the workspace, `file:` URLs, blanks and
look-alikes.

The proxy and the server must read the same path. So a text that two readers could take for two
different paths is refused, and the judged spelling is sent.
"""

import posixpath
import re
import unicodedata
from typing import Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct

# Characters that a normalising reader turns into "/", "." or ".." (NFKC), and three that only look
# like a slash. A test holds the first group to the Unicode tables.
LOOK_ALIKES: Final = frozenset(
    "\u2024\u2025\ufe30\ufe52\uff0e\u2100\u2101\u2105\u2106\uff0f\u2044\u2215\u29f8"
)

_FILE_URL: Final = re.compile(r"file:", re.IGNORECASE)
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|%2f|%5c|%00", re.IGNORECASE)


class Refusal(Struct, frozen=True):
    """The reason why a value is refused: one clause, without the value itself."""

    reason: str


_INVISIBLE: Final = frozenset({"Zs", "Zl", "Zp", "Cf"})
"""Unicode categories of blanks, line ends and marks without a shape."""
_BLANK_EDGE: Final = Refusal("begins or ends with a blank or an invisible character")


class Speller(Struct, frozen=True, kw_only=True):
    """The meaning of relative, aliased and abbreviated paths."""

    home: str
    """The meaning of `~`; empty: none."""
    workspace: str | None
    """Absolute; the base of relative paths."""
    cwd: str | None
    """The directory that relative paths without a workspace, and `~name`, start from; None: they
    are refused, because the server behind the proxy has a working directory of its own."""
    alias: str | None = None
    """Another name for the workspace, such as `/workspace`."""

    def spell(self, text: str) -> str | Refusal:
        """Give the absolute spelling: no `.`, `..`, `//` or trailing slash, links untouched."""
        refusal = _unclear(text)
        if refusal is not None:
            return refusal
        if _FILE_URL.match(text):
            decoded = _path_of_file_url(text)
            if isinstance(decoded, Refusal):
                return decoded
            text = decoded
        absolute = self._absolute(text)
        if isinstance(absolute, Refusal):
            return absolute
        spelled = posixpath.normpath(absolute)
        # POSIX lets exactly two leading slashes mean something else; Linux does not.
        return spelled[1:] if spelled.startswith("//") else spelled

    def _absolute(self, text: str) -> str | Refusal:
        if text.startswith("/"):
            return self._without_alias(text)
        if text == "~" or text.startswith("~/"):
            base, text = self.home or None, text[2:]
        elif text.startswith("~"):
            base = self.cwd
        else:
            base = self.cwd if self.workspace is None else self.workspace
        if base is None:
            return Refusal("stands for no certain directory; write the absolute path")
        return f"{base}/{text}"

    def _without_alias(self, text: str) -> str:
        alias = self.alias
        if alias is None or self.workspace is None or not text.startswith(alias):
            return text
        rest = text[len(alias) :]
        return self.workspace + rest if not rest or rest.startswith("/") else text


def _unclear(text: str) -> Refusal | None:
    if text.isascii() and text.isprintable():
        return _BLANK_EDGE if text[:1] == " " or text[-1:] == " " else None
    categories = {unicodedata.category(character) for character in text}
    edges = {unicodedata.category(text[0]), unicodedata.category(text[-1])}
    found: Refusal | None = None
    if not LOOK_ALIKES.isdisjoint(text):
        found = Refusal('holds a character that can be taken for "/" or "."')
    if not edges.isdisjoint(_INVISIBLE):
        found = _BLANK_EDGE
    if "Cs" in categories:
        found = Refusal("is not valid Unicode text")
    if "Cc" in categories:
        found = Refusal("holds a control character")
    return found


def _path_of_file_url(url: str) -> str | Refusal:
    """Decode a `file:` URL. WHATWG and RFC 8089 must agree on it, or it is refused."""
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in {"", "localhost"}:
            return Refusal("is a file: URL on another host")
        rest = slash + path
    if not rest.startswith("/") or "?" in rest or "#" in rest or "\\" in rest:
        return Refusal("is a file: URL that is not plainly an absolute path")
    if _BAD_ESCAPE.search(rest):
        return Refusal("is a file: URL with an escape that can be read in two ways")
    try:
        path = unquote_to_bytes(rest).decode()
    except UnicodeDecodeError:
        return Refusal("is a file: URL whose escapes are not UTF-8")
    return _unclear(path) or path
