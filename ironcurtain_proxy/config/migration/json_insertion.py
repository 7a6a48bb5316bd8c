"""Inserts a member into a JSON text, so that its comments, order and layout stay as they are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from ironcurtain_proxy.model.json import Json

_BOM: Final = "\N{ZERO WIDTH NO-BREAK SPACE}"
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_BLANKS: Final = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Insertion:
    """A member to be inserted."""

    place: tuple[str, ...]
    """The keys that lead to its object; `()`: the document."""
    key: str
    value: Json


def inserted(before: bytes, insertions: Sequence[Insertion]) -> bytes | None:
    """The text with the members inserted, each as the first one of its object.

    None: it is not JSON, an object is not there, or a key is taken. What comes back says what the
    old text said, and the insertions, and nothing else.
    """
    text, document = _read(before)
    if document is None:
        return None
    for insertion in insertions:
        there = _object_at(document, insertion.place)
        if there is None or insertion.key in there:
            return None
        text = _with_words(text, insertion)
        there[insertion.key] = insertion.value
    after = text.encode()
    return after if _read(after)[1] == document else None


def _read(content: bytes) -> tuple[str, Json]:
    """The text, and what it says; None if it says nothing."""
    try:
        text = content.decode()
        document: Json = orjson.loads(text.removeprefix(_BOM))
    except (UnicodeDecodeError, orjson.JSONDecodeError):
        return "", None
    return text, document


def _object_at(document: Json, place: tuple[str, ...]) -> dict[str, Json] | None:
    there = document
    for key in place:
        there = there.get(key) if isinstance(there, dict) else None
    return there if isinstance(there, dict) else None


def _with_words(text: str, insertion: Insertion) -> str:
    at = _behind_brace(text, insertion.place)
    words = f'"{insertion.key}": {_compact(insertion.value)}'
    gap = _BLANKS.match(text, at)
    blanks = gap[0] if gap else ""
    rest = text[at + len(blanks) :]
    if rest.startswith("}"):
        return f"{text[:at]}\n  {words}\n{rest}"
    return f"{text[:at]}{blanks}{words},{blanks or ' '}{rest}"


def _compact(value: Json) -> str:
    """On one line, with blanks where people put them."""
    if isinstance(value, dict):
        members = [f'"{key}": {_compact(inner)}' for key, inner in value.items()]
        return "{" + ", ".join(members) + "}"
    return orjson.dumps(value).decode()


def _behind_brace(text: str, place: tuple[str, ...]) -> int:
    """Where the members of the object at `place` begin. It is there."""
    open_keys: list[str] = []
    latest = ""
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "{[":
            open_keys.append(latest)
            if word == "{" and tuple(open_keys[1:]) == place:
                return token.end()
        elif word in "}]":
            open_keys.pop()
        else:
            # A key, or a value: in an object no value stands between a key and its brace, and
            # into an array no place leads.
            latest = orjson.loads(word)
    return len(text)
