"""The parts shared by the three formats of client files.

A format finds the members of one table in a text, and replaces some of them. Everything else of
the text stays as it is, byte for byte: comments, order, layout. No format is trusted to have done
so: `moved` reads the new text and compares.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias  # noqa: TID251  msgspec knows no recursive `Json`

from ironcurtain_proxy.model.json import Json

TablePath: TypeAlias = tuple[str, ...]
"""The keys that lead to a table of servers, such as `("mcpServers",)`."""

Edit: TypeAlias = tuple[int, int, str]
"""Start and end in the text, and the new text between them."""


class NotUnderstoodError(Exception):
    """A text, or a part that was to be changed, has a form that is not understood.

    The message is a few words, such as "is not JSON: …".
    """


class TextFormat(Protocol):
    """The interface of a text format."""

    def parse(self, text: str) -> Json:
        """Return the value.

        Raises:
            NotUnderstoodError: it has none.
        """

    def sources(self, text: str, place: TablePath) -> Mapping[str, str]:
        """Return the members of a table as they are written, by name.

        Raises:
            NotUnderstoodError: they are written in a form that cannot be changed.
        """

    def written(self, text: str, place: TablePath, name: str, value: Mapping[str, Json]) -> str:
        """Return a new member of a table, in the style of its neighbours."""

    def replaced(
        self, text: str, place: TablePath, names: Collection[str], sources: Sequence[str]
    ) -> str:
        """The text with other members where the first of `names` was, and without the rest of them.

        Raises:
            NotUnderstoodError: they are written in a form that cannot be changed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Members of one table that are replaced by one new member."""

    place: TablePath
    names: tuple[str, ...]
    name: str
    value: Mapping[str, Any]


def moved(form: TextFormat, text: str, move: Move) -> str:
    """Return the text after a move.

    Raises:
        NotUnderstoodError: the move cannot be made without a change elsewhere.
    """
    wanted = _changed(form.parse(text), move.place, move.names, {move.name: {**move.value}})
    new = form.written(text, move.place, move.name, move.value)
    after = form.replaced(text, move.place, move.names, [new])
    return _verified(form, after, wanted)


def given_back(form: TextFormat, now: str, before: str, move: Move) -> str:
    """Return the present text with the moved members restored in place of the new member.

    Args:
        form: of both texts.
        now: the present text; its other parts may have changed since the move.
        before: the text before the move.
        move: the move that was made.

    Raises:
        NotUnderstoodError: the new member is not there as it was written, or a name is taken.
    """
    table = table_at(form.parse(now), move.place)
    if table is None or table.get(move.name) != {**move.value}:
        raise NotUnderstoodError(f'"{move.name}" is not there as it was written')
    if taken := sorted(table.keys() & (set(move.names) - {move.name})):
        raise NotUnderstoodError(f'"{taken[0]}" is there again')
    sources = form.sources(before, move.place)
    after = form.replaced(now, move.place, [move.name], [sources[name] for name in move.names])
    old = table_at(form.parse(before), move.place) or {}
    members = {name: old[name] for name in move.names}
    return _verified(form, after, _changed(form.parse(now), move.place, [move.name], members))


def table_at(document: Json, place: TablePath) -> dict[str, Json] | None:
    """Return the table at a place, or None if there is none."""
    there = document
    for key in place:
        there = there.get(key) if isinstance(there, dict) else None
    return there if isinstance(there, dict) else None


def spliced(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with edits, which do not overlap, carried out."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def line_start(text: str, at: int) -> int:
    """Return the start of a line, if only blanks stand between it and `at`; else `at`."""
    begin = text.rfind("\n", 0, at) + 1
    return begin if not text[begin:at].strip(" \t") else at


def newline(text: str) -> str:
    """Return the end of a line in this text."""
    return "\r\n" if "\r\n" in text else "\n"


def _changed(
    document: Json, place: TablePath, removed: Collection[str], added: Mapping[str, Json]
) -> Json:
    document = deepcopy(document)
    table = table_at(document, place)
    if table is None:
        raise NotUnderstoodError("has no such table")
    for name in removed:
        table.pop(name, None)
    table.update(added)
    return document


def _verified(form: TextFormat, text: str, wanted: Json) -> str:
    if form.parse(text) != wanted:
        raise NotUnderstoodError("cannot be changed without changing something else")
    return text
