"""Reading of a JSON or YAML document: strict, bounded, with the place of every mistake.

Two equal keys in one object are refused: parsers keep the last one silently, so a reader of the
file and the proxy could see different rules. This file does not know what the documents mean.
"""

import errno
import json  # noqa: TID251  orjson keeps the last of two equal keys without a word
import os
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.config.reading.document import DocumentNode, PathPart, Report
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_files import opened

MAX_BYTES: Final = 16 * 1024 * 1024
"""The size limit of a file. A policy of 20,000 rules has 10 MB."""

_YAML_SUFFIXES: Final = frozenset({".yaml", ".yml"})
_BOM: Final = b"\xef\xbb\xbf"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def read_file(path: Path, report: Report) -> bytes | None:
    """Return the bytes of a regular file, or None with the reason in the report.

    Never waits: a pipe or device in the place of a file is refused.
    """
    try:
        with opened(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        report.error(path, (), f"cannot be read: {_cause(error)}")
        return None
    if len(data) > MAX_BYTES:
        report.error(path, (), f"is larger than {MAX_BYTES // 1024 // 1024} MiB")
        return None
    if data[:2] in _UTF_16 or data[:2].count(0) == 1:
        report.error(path, (), "is UTF-16, as some editors of Windows write; save it as UTF-8")
        return None
    return data


def read_text(path: Path) -> str:
    """Return the text of a regular file, with its byte order mark. Never waits.

    Raises:
        ConfigurationError: it cannot be read, or is no text; the message names the file.
    """
    report = Report()
    data = read_file(path, report)
    if data is None or report.has_errors:
        raise ConfigurationError(f"{path} {report.problems[0].message}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8") from None


def is_there(path: Path) -> bool:
    """Return whether a path exists, including dangling links and paths that may not be accessed.

    Only a definite ENOENT counts as no: an unreachable configuration must not count as none.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read_document(path: Path, report: Report) -> tuple[bytes, DocumentNode] | None:
    """Return the bytes of a file and its parsed value, or None with the reason in the report."""
    data = read_file(path, report)
    if data is None:
        return None
    before = len(report.problems)
    document = parse(data, path, report, yaml=path.suffix.lower() in _YAML_SUFFIXES)
    if len(report.problems) != before:
        return None
    return data, DocumentNode(document, str(path), report)


def parse(data: bytes, source: object, report: Report, *, yaml: bool = False) -> Json:
    """Return the parsed value. After an error, which is in the report, it is meaningless."""
    data = data.removeprefix(_BOM)
    if not data.strip():
        report.error(source, (), "is empty")
        return None
    if yaml:
        # PyYAML takes milliseconds to import and most installations have no YAML file.
        from ironcurtain_proxy.config.reading.yaml_reading import parse_yaml  # noqa: PLC0415

        return parse_yaml(data, source, report)
    return _parse_json(data, source, report)


def _parse_json(data: bytes, source: object, report: Report) -> Json:
    try:
        # The stricter of the two parsers: no NaN, no lone surrogates, bounded depth.
        document: Json = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        report.error(source, (), f"is not JSON: {error.msg} at {_place(error)}")
        return None
    if _has_repeated_keys(data):
        for place in _repeated_keys(data):
            report.error(source, place, "the key occurs twice: remove one")
    return document


class _Object(list[tuple[str, object]]):
    """A JSON object with its keys as written, including duplicates."""


def _has_repeated_keys(data: bytes) -> bool:
    found = False

    def check(pairs: list[tuple[str, object]]) -> None:
        nonlocal found
        if len(pairs) > 1 and len({key for key, _ in pairs}) != len(pairs):
            found = True

    _walk_json(data, check)
    return found


def _repeated_keys(data: bytes) -> list[tuple[PathPart, ...]]:
    places: list[tuple[PathPart, ...]] = []
    pending: list[tuple[tuple[PathPart, ...], object]] = [((), _walk_json(data, _Object))]
    while pending:
        place, value = pending.pop()
        if isinstance(value, _Object):
            seen: set[str] = set()
            for key, inner in value:
                if key in seen:
                    places.append((*place, key))
                seen.add(key)
                pending.append(((*place, key), inner))
        elif isinstance(value, list):
            pending.extend([((*place, index), inner) for index, inner in enumerate(value)])
    return sorted(places, key=str)


def _walk_json(data: bytes, hook: "type[_Object] | object") -> object:
    # Integers stay text: Python refuses to convert very long ones, and nobody looks at them here.
    return json.loads(data, object_pairs_hook=hook, parse_int=str)  # type: ignore[arg-type]


def _place(error: json.JSONDecodeError) -> str:
    return f"line {error.lineno}, column {error.colno}"


def _cause(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError) or error.errno is None:
        return "its path is not a path"
    match error.errno:
        case errno.ENOENT:
            return "it does not exist"
        case errno.EACCES | errno.EPERM:
            return "permission denied"
        case errno.EISDIR:
            return "it is a directory"
        case _:
            return (error.strerror or os.strerror(error.errno)).lower()
