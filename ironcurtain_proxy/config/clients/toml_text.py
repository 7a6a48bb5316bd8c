"""The format of TOML, of which one table is changed and all else stays as it is written."""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, cast

import orjson
from msgspec import Struct

from ironcurtain_proxy.config.clients.text_format import (
    BYTE_ORDER_MARK,
    Edit,
    NotUnderstoodError,
    TablePath,
    newline,
    spliced,
)
from ironcurtain_proxy.model.values import Json

_TOKEN: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]',
    re.DOTALL,
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class _Section(Struct, frozen=True):
    """The lines of one table: from its header to its last value."""

    path: tuple[str, ...]
    start: int
    end: int


class TomlText:
    """The format of TOML."""

    def parse(self, text: str) -> Json:
        """Return the value. Dates become text: no server has one."""
        try:
            return _plain_toml(tomllib.loads(text.removeprefix(BYTE_ORDER_MARK)))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise NotUnderstoodError(f"is not TOML: {' '.join(str(error).split())}") from None

    def sources(self, text: str, place: TablePath) -> Mapping[str, str]:
        """Return each server's tables, with those inside of it."""
        found: dict[str, str] = {}
        for name, section in _named(text, place):
            source = text[section.start : section.end]
            found[name] = f"{found[name]}{newline(text)}{source}" if name in found else source
        return found

    def written(self, text: str, place: TablePath, name: str, value: Mapping[str, Json]) -> str:
        """Return a table with one line for each key."""
        end = newline(text)
        header = f"[{'.'.join(map(_key, (*place, name)))}]{end}"
        return header + "".join(f"{_key(key)} = {_value(one)}{end}" for key, one in value.items())

    def replaced(
        self, text: str, place: TablePath, names: Collection[str], sources: Sequence[str]
    ) -> str:
        """Return the text after a replacement.

        Comments stay, except those inside the replaced tables.
        """
        going = [(name, section) for name, section in _named(text, place) if name in names]
        if missing := sorted(set(names) - {name for name, _ in going}):
            raise NotUnderstoodError(f'"{missing[0]}" is not written as a table of its own')
        first = going[0][1]
        edits: list[Edit] = [(first.start, first.end, newline(text).join(sources))]
        edits += [(one.start, _blank_end(text, one.end), "") for _, one in going[1:]]
        return spliced(text, edits)


def _named(text: str, place: TablePath) -> Iterator[tuple[str, _Section]]:
    depth = len(place)
    for section in _sections(text):
        if section.path[:depth] == place and len(section.path) > depth:
            yield section.path[depth], section


def _sections(text: str) -> list[_Section]:
    headers: list[tuple[int, tuple[str, ...]]] = []
    depth, top = 0, int(text.startswith(BYTE_ORDER_MARK))
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in ("[", "{"):
            begin = max(text.rfind("\n", 0, token.start()) + 1, top)
            if depth == 0 and word == "[" and not text[begin : token.start()].strip():
                headers.append((begin, _path(text, begin)))
            depth += 1
        elif word in ("]", "}"):
            depth -= 1
    ends = [start for start, _ in headers[1:]] + [len(text)]
    values = _TOKEN.sub(lambda found: _without_comment(found[0]), text)
    return [
        _Section(path, start, _line_end(text, start + len(values[start:end].rstrip())))
        for (start, path), end in zip(headers, ends, strict=True)
    ]


def _without_comment(word: str) -> str:
    return " " * len(word) if word.startswith("#") else word


def _path(text: str, begin: int) -> tuple[str, ...]:
    """Return the keys of a header, such as `[a."b c"]`."""
    line = text[begin : _line_end(text, begin)]
    keys: list[str] = []
    inner: object = tomllib.loads(line)
    while inner:
        if isinstance(inner, list):
            inner = inner[0]
        elif isinstance(inner, dict):
            ((key, inner),) = inner.items()
            keys.append(str(key))
    return tuple(keys)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _blank_end(text: str, at: int) -> int:
    """Return the end of the blank lines that follow."""
    while at < len(text) and not text[at : (end := _line_end(text, at))].strip():
        at = end
    return at


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    return orjson.dumps(text).decode().replace("\x7f", "\\u007f")


def _value(value: Json) -> str:
    match value:
        case str():
            return _text(value)
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case dict():
            inner = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case _:
            return orjson.dumps(value).decode()


def _plain_toml(value: object) -> Json:
    match value:
        case dict():
            return {str(key): _plain_toml(one) for key, one in value.items()}
        case list():
            return [_plain_toml(one) for one in value]
        case bool() | int() | float() | str():
            return cast("Json", value)
        case _:
            return str(value)
