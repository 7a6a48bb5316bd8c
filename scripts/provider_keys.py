"""Make the expressions of providers' keys from their table: `scripts/provider_keys.py`.

The table is `provider_keys.txt`; what is made of it is `provider_keys.json` of the folder `audit`,
so that no proxy makes it at its start. A key is known by its beginning; what follows is one class
of characters with a least length, so that no match looks at a character twice.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias, assert_never

import orjson
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


def built() -> str:
    """Return the expressions as JSON: of all beginnings, and of the keys by their first letters."""
    by_head: dict[str, list[tuple[str, bool]]] = {}
    for prefix, expression, alone in patterns():
        by_head.setdefault(prefix[:_HEAD], []).append((expression, alone))
    found = {"starts": starts(), "base64": starts("base64"), "byHead": by_head}
    return orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode() + "\n"


_HEAD: Final = 2
BUILT: Final = Path(__file__).parents[1] / "ironcurtain_proxy/audit/provider_keys.json"


if __name__ == "__main__":
    BUILT.write_text(built(), "utf-8")
