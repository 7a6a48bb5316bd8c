"""The strict base of every file model, and what pydantic found wrong in the operator's words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Final, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from ironcurtain_proxy.administration.problems import PathPart, Report, nearest, shown
from ironcurtain_proxy.administration.reading import describe

Place = tuple[PathPart, ...]
"""Where in a document something stands."""


class Shape(BaseModel):
    """An object in a file: no key that we do not know; keys that begin with `_` are comments.

    A field `list_type` is the key `listType`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _without_comments(cls, data: object) -> object:
        if isinstance(data, dict) and any(str(key).startswith("_") for key in data):
            return {key: value for key, value in data.items() if not str(key).startswith("_")}
        return data


def _refuse_null(value: object) -> object:
    if value is None:
        raise PydanticCustomError("null", "must not be null")
    return value


ShapeT = TypeVar("ShapeT", bound=Shape)
T = TypeVar("T")

Given: TypeAlias = Annotated[T | None, BeforeValidator(_refuse_null)]
"""A key that may be left out (None) but not be null: a condition of null would restrict nothing."""

_WANTED: Final[Mapping[str, str]] = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
}
_WORDS: Final = re.compile(r"'([^']*)'")


def read_shape(
    shape: type[ShapeT], data: object, source: object, report: Report, at: Place = ()
) -> ShapeT | None:
    """The data as a shape, or None with every mistake in the report; `at` is where it stands."""
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _note(shape, data, detail, _Source(source, report, at))
        return None


class _Source:
    """Where the mistakes of one piece of data are noted."""

    def __init__(self, source: object, report: Report, at: Place) -> None:
        self._source = source
        self._report = report
        self._at = at

    def error(self, place: Place, message: str, suggestion: str = "") -> None:
        self._report.error(self._source, (*self._at, *place), message, suggestion)


def _note(shape: type[Shape], data: object, detail: ErrorDetails, source: _Source) -> None:
    place = _real_place(data, detail)
    kind, given = detail["type"], detail["input"]
    match kind:
        case "extra_forbidden":
            known = _known_keys(shape, place[:-1])
            source.error(place, "unknown key", nearest(str(place[-1]), known))
        case "missing":
            source.error(place, "is missing")
        case "literal_error":
            words = _WORDS.findall(str(detail.get("ctx", {}).get("expected", "")))
            one_of = f"one of {', '.join(words)}"
            if isinstance(given, str):
                source.error(place, f"{shown(given)} is not {one_of}", nearest(given, words))
            else:
                source.error(place, f"must be {one_of}, not {describe(given)}")
        case _ if kind in _WANTED:
            source.error(place, f"must be {_WANTED[kind]}, not {describe(given)}")
        case "string_too_short" | "too_short":
            source.error(place, "must not be empty")
        case _:
            source.error(place, _lowered(detail["msg"]))


def _lowered(message: str) -> str:
    text = message.removeprefix("Value error, ").replace("Input should be", "must be")
    return text[:1].lower() + text[1:]


def _real_place(data: object, detail: ErrorDetails) -> Place:
    """The steps of pydantic's location that are in the document: not those that name a branch."""
    place: list[PathPart] = []
    last = len(detail["loc"]) - 1
    for index, part in enumerate(detail["loc"]):
        if _has(data, part):
            data = data[part]  # type: ignore[index]  # just looked
        elif index != last or detail["type"] not in {"missing", "extra_forbidden"}:
            continue
        place.append(part)
    return tuple(place)


def _has(data: object, part: PathPart) -> bool:
    if isinstance(data, dict):
        return part in data
    return isinstance(data, list) and isinstance(part, int) and part < len(data)


def _known_keys(shape: type[Shape], place: Place) -> Iterator[str]:
    kinds: list[object] = [shape]
    for part in place:
        kinds = [inner for kind in kinds for inner in _inside(kind, part)]
    for kind in kinds:
        for branch in _branches(kind):
            if isinstance(branch, type) and issubclass(branch, Shape):
                for name, field in branch.model_fields.items():
                    yield field.alias or name


def _inside(kind: object, part: PathPart) -> Iterable[object]:
    for branch in _branches(kind):
        arguments = get_args(branch)
        if isinstance(branch, type) and issubclass(branch, Shape):
            for name, field in branch.model_fields.items():
                if (field.alias or name) == part:
                    yield field.annotation
        elif arguments:
            # The items of a list, the values of a mapping.
            yield arguments[-1]


def _branches(kind: object) -> Iterable[object]:
    origin = get_origin(kind)
    if origin is Annotated:
        return _branches(get_args(kind)[0])
    if origin in {Union, UnionType}:
        return [branch for argument in get_args(kind) for branch in _branches(argument)]
    return [kind]
