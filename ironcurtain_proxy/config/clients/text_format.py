"""Changes of one part of a client's file: JSON with comments, TOML, YAML.

A format finds the members of one table in a text, and replaces some of them. Everything else of
the text stays as it is, byte for byte: comments, order, layout. No format is trusted to have done
so: `moved` reads the new text and compares.

Each text is parsed by a usual parser, and only lines and members are replaced by ours, because no
library gives all bytes back: json-five had its last release in 2024 and needs two further packages;
tomlkit 0.15 cannot remove tables that stand apart from each other (IndexError), as in a
configuration that grew over time, and adds blank lines where a table is put back; ruamel.yaml 0.19
keeps neither several blanks nor every indentation of a list.
"""

import json  # noqa: TID251  orjson does not say where a value ends
import re
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any, Final, Protocol, TypeAlias  # noqa: TID251  msgspec knows no recursive `Json`

import orjson
import yaml
from msgspec import Struct
from yaml.nodes import MappingNode, Node, ScalarNode

from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.reading.yaml_reading import parse_yaml
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.strict_json import strict_json

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
        """Put other members where the first of `names` was, and drop the rest of them.

        Raises:
            NotUnderstoodError: they are written in a form that cannot be changed.
        """


class Move(Struct, frozen=True, kw_only=True):
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


# --- json text


_STRING: Final = r'"(?:[^"\\]|\\.)*+"?'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\r\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"{_STRING}|,(?=[ \t\r\n]*[}}\]])", re.DOTALL)
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
BYTE_ORDER_MARK: Final = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""What some editors of Windows put before a text. It stays there."""

_DECODER: Final = json.JSONDecoder(parse_int=str)


class _Member(Struct, frozen=True):
    name: str
    start: int
    end: int
    comma: int | None
    """The position of the comma behind it, or None if there is none."""


class JsonText:
    """The format of JSON with comments."""

    def parse(self, text: str) -> Json:
        """Return the value; a key that stands twice is refused."""
        try:
            return strict_json(_plain(text).encode())
        except orjson.JSONDecodeError as error:
            where = f" at line {error.lineno}, column {error.colno}" if error.doc else ""
            raise NotUnderstoodError(f"is not JSON: {error.msg}{where}") from None
        except (UnicodeEncodeError, RecursionError):
            raise NotUnderstoodError("is not JSON") from None

    def sources(self, text: str, place: TablePath) -> Mapping[str, str]:
        """Return each member from its key to the end of its value."""
        return {one.name: text[one.start : one.end] for one in _members(text, place)}

    def written(self, text: str, place: TablePath, name: str, value: Mapping[str, Json]) -> str:
        """Return the new member, on lines of its own where the table's first member has one."""
        members = _members(text, place)
        key = orjson.dumps(name).decode()
        start = members[0].start if members else 0
        begin = line_start(text, start)
        if begin == start:
            return f"{key}: {_compact({**value})}"
        indent = text[begin:start]
        lines = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode().split("\n")
        unit = _unit(text)
        stepped = [_stepped(line, unit) for line in lines]
        return f"{key}: " + f"{newline(text)}{indent}".join(stepped)

    def replaced(
        self, text: str, place: TablePath, names: Collection[str], sources: Sequence[str]
    ) -> str:
        """Return the text after a replacement.

        Comments stay, except those inside the replaced members.
        """
        members = _members(text, place)
        going = [one for one in members if one.name in names]
        if not going:
            raise NotUnderstoodError("has no such table")
        first = going[0]
        begin = line_start(text, first.start)
        between = "," + (newline(text) + text[begin : first.start] if begin < first.start else " ")
        edits: list[Edit] = [(first.start, first.end, between.join(sources))]
        edits += [_removal(text, one) for one in going[1:]]
        staying = [one for one in members if one is first or one.name not in names]
        if staying[-1] is not members[-1] and members[-1].comma is None:
            comma = staying[-1].comma
            edits += [] if comma is None else [(comma, comma + 1, "")]
        return spliced(text, edits)


def _uncommented(text: str) -> str:
    text = text.replace(BYTE_ORDER_MARK, " ", 1) if text.startswith(BYTE_ORDER_MARK) else text
    return _COMMENT.sub(_blanked, text)


def _plain(text: str) -> str:
    return _LAST_COMMA.sub(lambda found: " " if found[0] == "," else found[0], _uncommented(text))


def _blanked(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"[^\r\n]", " ", found[0])


def with_first(text: str, place: TablePath, key: str | None, value: Json) -> str:
    """Return a text that was parsed, with a new first member of the object at a place.

    Without a key it is the first of a list.
    """
    plain = _plain(text)
    at = _start(plain, place) + 1
    rest = _skip(text, at)
    member = _compact(value) if key is None else f"{_compact(key)}: {_compact(value)}"
    if plain[_skip(plain, at)] in "}]":
        return f"{text[:at]}\n  {member}\n{text[at:].lstrip()}"
    blanks = text[at:rest]
    return f"{text[:at]}{blanks}{member},{blanks or ' '}{text[rest:]}"


def rewritten(text: str, wanted: Mapping[str, Json]) -> str:
    """Return a text of JSON with other values. What stays of it is as it was, comments too.

    Raises:
        NotUnderstoodError: the text is no JSON.
    """
    form = JsonText()
    return _verified(form, _rewritten(text, (), form.parse(text), {**wanted}), {**wanted})


def _rewritten(text: str, place: TablePath, now: Json, wanted: Json) -> str:
    if isinstance(now, dict) and isinstance(wanted, dict):
        for name in now.keys() - wanted.keys():
            text = _without(text, place, name)
        for name, value in wanted.items():
            if name not in now:
                text = with_first(text, place, name, value)
            elif now[name] != value:
                text = _rewritten(text, (*place, name), now[name], value)
        return text
    start = _start(_plain(text), place)
    if isinstance(now, list) and isinstance(wanted, list):
        gone = max(len(now) - len(wanted), 0)
        added = wanted[: max(len(wanted) - len(now), 0)]
        if [*added, *now[gone:]] == wanted:
            text = spliced(text, [(start + 1, _behind(text, start, gone), "")])
            first = lambda one, value: with_first(one, place, None, value)  # noqa: E731
            return reduce(first, reversed(added), text)
    _, end = _DECODER.raw_decode(_plain(text), start)
    return spliced(text, [(start, end, _compact(wanted))])


def _without(text: str, place: TablePath, name: str) -> str:
    """Return a text without a member, and without a comma that would be the last one."""
    members = _members(text, place)
    at = [one.name for one in members].index(name)
    edits, before = [_removal(text, members[at])], members[at - 1].comma if at else None
    if at == len(members) - 1 and members[at].comma is None and before is not None:
        edits.append((before, before + 1, ""))
    return spliced(text, edits)


def _behind(text: str, start: int, number: int) -> int:
    """Return the position behind so many first values of a list, and the comma of the last."""
    plain, commas, end = _plain(text), _uncommented(text), start + 1
    for _ in range(number):
        _, at = _DECODER.raw_decode(plain, _skip(plain, end))
        comma = _skip(plain, at)
        end = comma + 1 if commas[comma] == "," else at
    return end


def _members(text: str, place: TablePath) -> list[_Member]:
    """Return the members of the object at a place of a text that was parsed."""
    plain, commas = _plain(text), _uncommented(text)
    return [
        _Member(name, start, end, after if commas[after : after + 1] == "," else None)
        for name, start, _, end in _pairs(plain, _start(plain, place))
        for after in (_skip(commas, end),)
    ]


def _start(plain: str, place: TablePath) -> int:
    """Return the position of the brace that opens the object at a place."""
    at = _skip(plain, 0)
    for key in place:
        at = next((value for name, _, value, _ in _pairs(plain, at) if name == key), len(plain))
    return at


def _pairs(plain: str, at: int) -> list[tuple[str, int, int, int]]:
    """Return the members: name, start, and the start and end of the value."""
    found: list[tuple[str, int, int, int]] = []
    try:
        if plain[at] != "{":
            raise NotUnderstoodError("has no such table")
        at = _skip(plain, at + 1)
        while plain[at] != "}":
            start = at
            name, at = _DECODER.raw_decode(plain, at)
            value = _skip(plain, _skip(plain, at) + 1)
            _, end = _DECODER.raw_decode(plain, value)
            found.append((str(name), start, value, end))
            at = _skip(plain, end)
            if plain[at] == ",":
                at = _skip(plain, at + 1)
    except (ValueError, IndexError, RecursionError):
        raise NotUnderstoodError("has no such table") from None
    return found


def _skip(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return at if blanks is None else blanks.end()


def _removal(text: str, member: _Member) -> Edit:
    """Return the edit that removes a member, its comma, and lines with nothing else."""
    start, end = member.start, member.end if member.comma is None else member.comma + 1
    begin = line_start(text, start)
    rest = text[end : text.find("\n", end) + 1]
    if begin < start and rest and not rest.strip():
        return begin, end + len(rest), ""
    while begin == start and text[start - 1] in " \t":
        start = begin = start - 1
    return start, end, ""


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _stepped(line: str, unit: str) -> str:
    inner = line.lstrip(" ")
    return unit * ((len(line) - len(inner)) // 2) + inner


def _compact(value: Json) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_compact(key)}: {_compact(one)}" for key, one in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_compact, value)) + "]"
    return orjson.dumps(value).decode()


# --- yaml text


class _Lines(Struct, frozen=True):
    """The lines of one member."""

    name: str
    start: int
    end: int
    indent: str


class YamlText:
    """The format of YAML."""

    def parse(self, text: str) -> Json:
        """Return the value. Anchors are refused, as in every YAML file that is read here."""
        report = Report()
        value = parse_yaml(text.encode("utf-8", "surrogatepass"), "", report, is_own=False)
        if report.has_errors:
            raise NotUnderstoodError(report.problems[0].message)
        return value

    def sources(self, text: str, place: TablePath) -> Mapping[str, str]:
        """Return the lines of each member."""
        return {one.name: text[one.start : one.end] for one in _yaml_members(text, place)}

    def written(self, text: str, place: TablePath, name: str, value: Mapping[str, Json]) -> str:
        """Return the lines of a new member, with the indentation of the table."""
        members = _yaml_members(text, place)
        indent = members[0].indent if members else "  "
        lines = yaml.safe_dump(
            {name: dict(value)}, sort_keys=False, allow_unicode=True, width=10_000
        ).splitlines()
        return "".join(f"{indent}{line}{newline(text)}" for line in lines)

    def replaced(
        self, text: str, place: TablePath, names: Collection[str], sources: Sequence[str]
    ) -> str:
        """Return the text after a replacement. Comments between members stay."""
        going = [one for one in _yaml_members(text, place) if one.name in names]
        if not going:
            raise NotUnderstoodError("has no such table")
        ended = [one if one.endswith("\n") else one + newline(text) for one in sources]
        edits: list[Edit] = [(going[0].start, going[0].end, "".join(ended))]
        edits += [(one.start, one.end, "") for one in going[1:]]
        return spliced(text, edits)


def _yaml_members(text: str, place: TablePath) -> list[_Lines]:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise NotUnderstoodError("is not YAML") from None
    for key in place:
        node = _inner(node, key)
    if not isinstance(node, MappingNode) or node.flow_style:
        raise NotUnderstoodError("is not written with a line for each member")
    return [_lines(text, key, value) for key, value in node.value]


def _inner(node: Node | None, key: str) -> Node | None:
    pairs = node.value if isinstance(node, MappingNode) else []
    return next((value for name, value in pairs if name.value == key), None)


def _lines(text: str, key: Node, value: Node) -> _Lines:
    at = _index(key.start_mark)
    start = text.rfind("\n", 0, at) + 1
    if text[start:at].strip(" "):
        raise NotUnderstoodError("is not written with a line for each member")
    end = _end(value)
    if text[end - 1] != "\n":
        end = text.find("\n", end) + 1 or len(text)
    return _Lines(str(key.value), start, end, text[start:at])


def _end(node: Node) -> int:
    """Return the end of the last scalar of a value.

    A block node itself ends where the next one begins.
    """
    if isinstance(node, ScalarNode) or getattr(node, "flow_style", False) or not node.value:
        return _index(node.end_mark)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, MappingNode) else last)


def _index(mark: object) -> int:
    return int(getattr(mark, "index", 0))
