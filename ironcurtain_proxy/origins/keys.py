"""One spelling for all spellings of a target, and the targets that stand whole in a text.

Theory of operation. A value of a call becomes pieces, each of a kind: `a, b@c.org` are two
addresses. A piece and a word of a text are the same target where their keys are equal:

    key_of("url", "https://Evil.example./a/../b?x#y")  ==  "url:evil.example/b?x"

A key leaves out what no usual service tells apart: a slash or `.git` at the end, a fragment. The
user's words and the user's own records are compared by it, and `http` or `git` is another service
than `https` (`exact_key`). `folded` is coarse: case, percent escapes, full-width letters and
characters that cannot be seen do not count. Results are compared by it, so that a page does not
hide that it named a target by another spelling.

A word stands whole or not at all: the text `kim@example.org.evil.example` does not name
`kim@example.org`.
"""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Final, Literal, TypeAlias, assert_never
from urllib.parse import unquote

from msgspec import Struct

from ironcurtain_proxy.model.annotation import IGNORES_CASE, ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.request import (
    TEXT_ROLES,
    PathValue,
    SqlValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import RealPath, lazy

TargetKind: TypeAlias = Literal["url", "address", "path", "name"]
"""The kind of a target. `name`: an identifier of a service, or any other word."""


class TargetPiece(Struct, frozen=True):
    """One target of a value."""

    kind: TargetKind
    text: str
    own: bool = False
    """Whether it is the user's own by what it is: in the workspace, or a remote by its name."""
    beside_slash: bool = False
    """Whether it is one half of `acme/web`, an owner or a repository, which ignore case."""


class Spelling(Struct, frozen=True, kw_only=True):
    """The directories that paths in texts start from."""

    home: str
    workspace: RealPath | None = None


_MAX_NAME: Final = 256
"""The longest word or line that may be the name of something, in characters."""
_ATEXT: Final = r"\w!#$%&'*+/=?^`{|}~.-"
_ADDRESS: Final = lazy(
    rf"(?<![@{_ATEXT}])['`*_|{{]*+([{_ATEXT}]++@[\w-]++(?:\.[\w-]++)++)(?![\w@/:-]|\.\w)"
)
_IN_BRACKETS: Final = lazy(r"[^<>@]*<([^<>\s]+@[^<>\s]+)>")
_SCHEME: Final = lazy(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCP: Final = lazy(r"(?:git@)?([\w.-]+):(?!/|\d+(?:/|$))(.+)")
_HOST: Final = lazy(r"(?:[\w-]+\.)+[^\W\d_][\w-]*\.?(?::\d+)?(?:[/?#].*)?", re.DOTALL)
_LINK: Final = lazy(
    r"(?:https?:[/\\]|www\.|(?<=[(\"'=])[/\\]{2}(?=[\w-]+\.))[^\s\"'<>`]+", re.IGNORECASE
)
"""A link in a text that other people read, also as a browser reads one in markup."""
_SLASHES: Final = lazy(r"\A(https?:)[/\\]+", re.IGNORECASE)
_BLOCK: Final = lazy(r"[^\s\"'<>`]+")
_WORD: Final = lazy(r"[^\s\"'`<>()\[\]{}|,;=\\]+")
_QUOTED: Final = lazy(r"\"([^\"\n]{1,256})\"|'([^'\n]{1,256})'|`([^`\n]{1,256})`")
_OPENING: Final = "([{"
_CLOSING: Final = ".,;:!?)]}*\u2026"
_UNSEEN: Final = lazy("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_WEAK: Final = lazy(r"[^\W\d_A-Z]*|.{0,2}|\d{0,4}")
"""A plain word in lower case, or a short number: it stands in many a sentence by chance."""
_CAPITAL_BEHIND: Final = lazy(r"[ \t]+[^\W\d_a-z]")
_CAPITAL_BEFORE: Final = lazy(r"[\w,)\"'][ \t]+[A-Z\u00c0-\u00de][\w'-]*[ \t]+\Z")
_MARKS: Final = "\"'`\u201c\u201d\u2018\u2019#@"


def pieces_of(
    value: Value, roles: tuple[ArgumentRole, ...], spelling: Spelling
) -> list[TargetPiece]:
    """Return the targets in a value of an argument with these roles, in order."""
    match value:
        case PathValue():
            workspace = spelling.workspace
            own = workspace is not None and value.path.is_within(workspace)
            return [TargetPiece("path", value.text, own=own)]
        case UrlValue():
            is_name = "git-remote-url" in roles and value.text not in value.domains
            own = is_name and not _SCHEME.match(value.text) and not _SCP.fullmatch(value.text)
            return [TargetPiece("url", value.text, own=own)]
        case TextValue() if not TEXT_ROLES.isdisjoint(roles):
            found = [*_LINK.findall(value.text)]
            if "&" in value.text:
                from html import unescape  # noqa: PLC0415  the entities take 2 ms to import

                found += _LINK.findall(unescape(value.text))
            links = dict.fromkeys([_SLASHES.sub(r"\1//", _bare(one)) for one in found])
            return [TargetPiece("url", one) for one in links]
        case TextValue() if roles[0] == "proxy-domain":
            return [TargetPiece("url", value.text)]
        case TextValue() if any(_is_target(role) for role in roles):
            slash = not {"github-owner", "github-repo"}.isdisjoint(roles)
            return _of_text(value.text, has_case=IGNORES_CASE.isdisjoint(roles), slash=slash)
        case TextValue() | SqlValue():
            return []
        case _:
            assert_never(value)


def _is_target(role: ArgumentRole) -> bool:
    return role == "email-address" or ROLE_TRAITS[role].category in {"identifier", "uri"}


def _of_text(text: str, *, has_case: bool, slash: bool) -> list[TargetPiece]:
    """Return the addresses of a list of them, or the name that the text is."""
    parts = [one.strip() for one in re.split(r"[,;\n]", text)] if "@" in text else [text]
    found = []
    for part in filter(None, parts):
        bracketed = _IN_BRACKETS.fullmatch(part)
        inner = part if bracketed is None else bracketed[1]
        found_in = _ADDRESS.fullmatch(inner)
        kind: TargetKind = "name" if found_in is None or found_in[1] != inner else "address"
        kind = "url" if _SCHEME.match(inner) else kind
        folded_name = inner if has_case or kind != "name" else inner.lower()
        found.append(TargetPiece(kind, folded_name, beside_slash=slash))
    return found or [TargetPiece("name", text)]


def folded(text: str) -> str:
    """Return a text without what differs between two spellings of one thing."""
    if "%" in text:
        text = unquote(text, errors="surrogateescape")
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
    return text.casefold()


def key_of(kind: TargetKind, text: str) -> str:
    """Return the key of a target: equal for equal ones, and for no others."""
    match kind:
        case "url":
            return f"url:{_url(text)}"
        case "address":
            local, _, domain = text.rpartition("@")
            # Only ASCII letters have one lower case: the Kelvin sign is no `k` to a mail server.
            return f"address:{local.lower() if local.isascii() else local}@{_host(domain)}"
        case "path":
            return f"path:{text}"
        case "name":
            return f"name:{text}"
        case _:
            assert_never(kind)


def exact_key(piece: TargetPiece) -> str:
    """Return the key by which a target is looked for in the user's words."""
    key = key_of(piece.kind, piece.text)
    is_open = piece.kind == "url" and _OPEN.match(piece.text)
    return f"{_UNENCRYPTED}{key}" if is_open else key


_OPEN: Final = lazy(r"(?:http|git):", re.IGNORECASE)
_UNENCRYPTED: Final = "http:"
"""Before a key: others can read what goes there, and answer it."""


def _host(text: str) -> str:
    return _url(text).partition("/")[0]


def _url(text: str) -> str:
    """Return host, path and query of a URL, a host or a git remote; any other text unchanged."""
    import can_ada  # noqa: PLC0415  a start reads no URL

    scp = None if _SCHEME.match(text) or _HOST.fullmatch(text) else _SCP.fullmatch(text)
    spelled = text if scp is None else f"{scp[1]}/{scp[2]}"
    scheme = _SCHEME.match(spelled)
    try:
        url = can_ada.parse(spelled if scheme else f"http://{spelled}")
    except (ValueError, TypeError):  # TypeError: a lone surrogate
        return text
    if url.protocol not in {"http:", "https:", "ssh:", "git:"}:
        return str(url.href)
    is_usual = url.username in {"", "git"} and not url.password
    user = "" if is_usual else f"{url.username}:{url.password}@"
    host = url.hostname.removesuffix(".")
    port = f":{url.port}" if url.port else ""
    return f"{user}{host}{port}{url.pathname.removesuffix('/').removesuffix('.git')}{url.search}"


def exact_keys(text: str, spelling: Spelling) -> Iterator[str]:
    """Yield the keys of every address, URL and path that stands whole in a text."""
    for address in _ADDRESS.findall(text):
        yield key_of("address", address)
    for block in dict.fromkeys(_BLOCK.findall(text)):
        word = _bare(block)
        if 0 < len(word) <= _MAX_NAME * 8:
            yield from _keys_of_word(word, spelling)


def _keys_of_word(word: str, spelling: Spelling) -> Iterator[str]:
    if _SCHEME.match(word) or _HOST.fullmatch(word) or _SCP.fullmatch(word):
        key = key_of("url", word)
        yield key
        if word[:6].lower() != "https:":
            yield f"{_UNENCRYPTED}{key}"
    if word.startswith("~/"):
        yield key_of("path", normpath(spelling.home + word[1:]))
    elif word.startswith("/"):
        yield key_of("path", normpath(f"/{word.lstrip('/')}"))
    elif spelling.workspace is not None and ("/" in word or "." in word):
        yield key_of("path", normpath(str(PurePosixPath(str(spelling.workspace), word))))


def names_in(text: str) -> Iterator[str]:
    """Yield what may be a name in a text: its lines, what stands behind a colon, what is quoted."""
    for line in dict.fromkeys(text.splitlines()):
        line = line.strip().lstrip("-*\u2022").strip()  # noqa: PLW2901  the line without its bullet
        if not line:
            continue
        if len(line) <= _MAX_NAME:
            yield line
        _, _, behind = line.partition(": ")
        if behind and len(behind) <= _MAX_NAME:
            yield behind.strip(" \"'")
        for quoted in _QUOTED.finditer(line):
            yield quoted[quoted.lastindex or 1]


def coarse_keys(text: str, spelling: Spelling) -> Iterator[str]:
    """Yield the keys of all that a result names, in any spelling, every word as a name."""
    text = folded(text)
    yield from exact_keys(text, spelling)
    for name in names_in(text):
        yield key_of("name", name)
    for word in dict.fromkeys(_WORD.findall(text)):
        yield key_of("name", word.lstrip("*_").rstrip("*_.:!?\u2026"))


def _bare(word: str) -> str:
    """Return a word without the punctuation around it. A dot in front belongs to a path."""
    return word.lstrip(_OPENING).rstrip(_CLOSING)


def says(message: str, piece: TargetPiece) -> bool:
    """Return whether a message of the user's has a name whole, as it is spelled.

    What stands in many sentences by chance, such as a plain word in lower case or a short number,
    counts only in quotes, or behind `#` or `@`. A name with a capital is whole only where none
    follows or precedes it within the sentence: `Kim Lee` does not name `Kim`.
    """
    name = piece.text
    if not name.strip() or len(name) > _MAX_NAME:
        return False
    beside = r"\w@%+~=&\\/-"
    after = rf"(?![{beside}]|[.:]\w)"
    if piece.beside_slash:
        owned = rf"(?<![\w@-]){re.escape(name)}/\w|\w/{re.escape(name)}{after}"
        return re.search(owned, message, re.IGNORECASE) is not None
    if _WEAK.fullmatch(name):
        marked = rf"(?<=[{_MARKS}])(?<!\w[{_MARKS}]){re.escape(name)}{after}"
        return re.search(marked, message) is not None
    plain = rf"(?<![{beside}])(?<!\w[.:]){re.escape(name)}{after}"
    return any(not _is_part(message, one) for one in re.finditer(plain, message))


def _is_part(message: str, name: re.Match[str]) -> bool:
    """Return whether a name with a capital stands in the middle of a longer one."""
    before, after = message[: name.start()], message[name.end() :]
    if not name[0][:1].isupper():
        return False
    return bool(_CAPITAL_BEHIND.match(after) or _CAPITAL_BEFORE.search(before[-_MAX_NAME:]))
