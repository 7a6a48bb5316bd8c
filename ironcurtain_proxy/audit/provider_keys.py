"""The beginnings and the bodies of providers' keys.

The table is `provider_keys.txt`; regular expressions are made of it here. A key is known by its
beginning; what follows is one class of characters with a least length, so that no match looks at a
character twice.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, TypeAlias, assert_never

from msgspec import Struct, convert

_TABLE: Final = Path(__file__).with_name("provider_keys.txt")

Body: TypeAlias = Literal["alnum", "lower", "upper", "hex", "url", "dotted", "base64"]
"""The characters that may follow a prefix."""

PrefixPlace: TypeAlias = Literal["word", "doubtful", "alone"]
"""The surroundings of a key, in the words of the table."""

CHARACTERS: Final[dict[Body, str]] = {
    "alnum": "A-Za-z0-9",
    "lower": "a-z0-9",
    "upper": "A-Z0-9",
    "hex": "0-9a-fA-F",
    "url": "A-Za-z0-9_-",
    "dotted": "A-Za-z0-9_.-",
    "base64": "A-Za-z0-9+/=_-",
}


class KeyFormat(Struct, frozen=True):
    """Prefixes of one form."""

    body: Body
    least: int
    """Characters after the prefix."""
    prefixes: tuple[str, ...]
    place: PrefixPlace = "word"
    longest: int | None = None
    """`alone` only: at most as many characters follow."""


def _formats() -> Iterator[KeyFormat]:
    for line in _TABLE.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            form, _, prefixes = line.partition(": ")
            place, body, length = form.split()
            least, _, longest = length.partition("-")
            fields = {"place": place, "body": body, "least": least, "longest": longest or None}
            yield convert(fields | {"prefixes": prefixes.split()}, KeyFormat, strict=False)


KEY_FORMATS: Final = tuple(_formats())
"""The formats by field of use. `looks_issued` finds keys of the usual kind of other providers."""

_ISSUED_TAIL: Final = 32
_TELLING_PIECES: Final = frozenset(
    {"sk", "rk", "pat", "live", "prod", "secret", "token", "apikey", "priv", "oat", "sat", "rt"}
)
_TELLING_TAIL: Final = 20
_LONGEST_ISSUED: Final = 512
_PIECES: Final = re.compile("[A-Za-z0-9]+")
_PREFIX_PIECE: Final = 15
_CHECKSUMS: Final = re.compile("sha[0-9]{1,3}|md5|blake[0-9a-z]{1,3}", re.IGNORECASE)


_WORD: Final = "(?:[A-Z]?[a-z]{1,40}+(?:[A-Z][a-z]{1,40}+){0,8}+[0-9]{0,3}+|[0-9]{1,4}+|[A-Z]+)"
_WORDS: Final = f"{_WORD}(?:[_.-]{_WORD}){{0,16}}+(?![A-Za-z0-9_-])"
"""Names that people write: words, with hyphens or capitals between them, and small numbers."""


def starts(body: Body | None = None) -> str:
    """A regular expression of every prefix, quick to fail; of one kind of body, or of all."""
    forms = [form for form in KEY_FORMATS if body in {None, form.body}]
    return _trie(sorted(prefix for form in forms for prefix in form.prefixes))


def patterns() -> Iterator[tuple[str, str, bool]]:
    """The prefixes, longest first, with the expression of their keys. True: they stand alone."""
    pairs = [(prefix, form) for form in KEY_FORMATS for prefix in form.prefixes]
    for prefix, form in sorted(pairs, key=lambda pair: -len(pair[0])):
        characters = CHARACTERS[form.body]
        start = re.escape(prefix)
        match form.place:
            case "word":
                yield prefix, f"{start}[{characters}]{{{form.least},}}+", False
            case "doubtful":
                yield prefix, f"{start}(?!{_WORDS})[{characters}]{{{form.least},}}+", False
            case "alone":
                body = f"[{characters}]{{{form.least},{form.longest or ''}}}+"
                yield prefix, f"{start}{body}(?![A-Za-z0-9_-])", True
            case _:
                assert_never(form.place)


def looks_issued(run: str) -> bool:
    """Whether a run of letters, digits, `_` and `-` is a word and then a random text.

    So nearly every key is made today: `acme_live_` and 32 characters. A digest has no capitals, a
    UUID no long piece, a name that a person wrote few digits and few changes of case.
    """
    if len(run) > _LONGEST_ISSUED:
        return False
    if _MAILCHIMP.search(run):
        return True
    before = ""
    for piece in _PIECES.findall(run):
        if before and not _CHECKSUMS.fullmatch(before) and _is_random(piece, before.lower()):
            return True
        before = piece
    return False


def _is_random(piece: str, before: str) -> bool:
    length = len(piece)
    telling = before in _TELLING_PIECES
    if length < (_TELLING_TAIL if telling else _ISSUED_TAIL) or len(before) > _PREFIX_PIECE:
        return False
    kinds = ["0" if c.isdigit() else "a" if c.islower() else "A" for c in piece]
    changes = sum(a != b for a, b in pairwise(kinds))
    digits = kinds.count("0")
    if telling and digits > 1 and changes >= length // 8:
        return True
    mixed = digits > 0 and kinds.count("a") >= _FEW and kinds.count("A") >= _FEW
    return mixed and changes > length // 3


_FEW: Final = 3
_MAILCHIMP: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}-us[0-9]{1,2}\Z")


def _trie(words: list[str]) -> str:
    """One alternative for each first character, and so on: a search tries few of them."""
    branches: dict[str, list[str]] = {}
    for word in words:
        if word:
            branches.setdefault(word[0], []).append(word[1:])
    inner = [re.escape(first) + _trie(rest) for first, rest in branches.items()]
    if not inner or "" in words:
        return ""
    return inner[0] if len(inner) == 1 else f"(?:{'|'.join(inner)})"
