"""Insertion of a member into a JSON text, with its order and layout kept."""

from collections.abc import Sequence

from msgspec import Struct

from ironcurtain_proxy.config.clients.json_text import JsonText, with_first
from ironcurtain_proxy.config.clients.text_format import NotUnderstoodError, TablePath, table_at
from ironcurtain_proxy.model.json import Json


class Insertion(Struct, frozen=True):
    """A member to be inserted."""

    place: TablePath
    """The keys that lead to the member's object; `()`: the document."""
    key: str
    value: Json


def inserted(before: bytes, insertions: Sequence[Insertion]) -> bytes | None:
    """The text with the members inserted, each as the first one of its object.

    None: the text is no JSON, an object does not exist, or a key is taken. The new text holds
    the old data and the insertions, and nothing else.
    """
    form = JsonText()
    try:
        text = before.decode()
        document = form.parse(text)
        for insertion in insertions:
            there = table_at(document, insertion.place)
            if there is None or insertion.key in there:
                return None
            text = with_first(text, insertion.place, insertion.key, insertion.value)
            there[insertion.key] = insertion.value
        return text.encode() if form.parse(text) == document else None
    except (UnicodeDecodeError, NotUnderstoodError):
        return None
