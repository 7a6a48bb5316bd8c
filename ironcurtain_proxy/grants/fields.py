"""Single values of the file of kept grants, read strictly."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath


class MalformedError(ValueError):
    """An invalid entry, with the reason."""


def object_of(value: Json, keys: frozenset[str]) -> Mapping[str, Json]:
    """An object with exactly these keys."""
    if not isinstance(value, dict) or value.keys() != keys:
        raise MalformedError("it has other keys than a grant")
    return value


def any_text(value: Json) -> str:
    """A text, which may be empty."""
    if not isinstance(value, str):
        raise MalformedError("a text is missing")
    return value


def text_of(value: Json) -> str:
    """A name or a digest: never empty, because two empty texts would be equal."""
    text = any_text(value)
    if not text:
        raise MalformedError("a text is empty")
    return text


def line_of(value: Json) -> str:
    """A text that can be shown on one line."""
    text = text_of(value)
    if not text.isprintable():
        raise MalformedError("its description is no line")
    return text


def path_of(value: Json) -> RealPath:
    """An absolute path without `.`, `..` and empty names."""
    text = text_of(value)
    path = RealPath.from_text(text)
    if str(path) != text or not {".", ".."}.isdisjoint(path.parts):
        raise MalformedError("a path is not a real one")
    return path


def moment_of(value: Json) -> datetime:
    """A time in UTC, in the form of the file."""
    try:
        moment = datetime.fromisoformat(text_of(value))
    except ValueError:
        raise MalformedError("a time is no time") from None
    if moment.utcoffset() != timedelta(0) or moment.isoformat() != value:
        raise MalformedError("a time is not in UTC")
    return moment
