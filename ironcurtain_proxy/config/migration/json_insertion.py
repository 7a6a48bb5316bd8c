"""Inserting a member into a JSON text, keeping its comments, order and layout."""

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
    """The keys that lead to the member's object; `()`: the document."""
    key: str
    value: Json


def inserted(before: bytes, insertions: Sequence[Insertion]) -> bytes | None:
    """The text with the members inserted, each as the first one of its object.

    None: the text is no JSON, an object does not exist, or a key is taken. The new text holds
    the old data and the insertions, and nothing else.
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
    """The text with its parsed value; None if it cannot be parsed."""
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
    """The position of the first member of the object at `place`, which exists."""
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
            # The brace follows a key or a value: no value stands between a key and its brace, and
            # no place leads into an array.
            latest = orjson.loads(word)
    return len(text)
