"""The shapes of entries in the lists of servers.

The entries of all servers stand in one list, and most clients reject a whole list for one entry of
another shape: a description that is `null` would take the tools of every server from the agent. So
a part that has not the type that the protocol says is left out, and what must be there is put
there. All else crosses as it came.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import (
    Annotated,
    Final,
    Literal,
    Required,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from msgspec import Meta, MsgspecError, convert

from ironcurtain_proxy.model.values import Json, object_of


class _Icon(TypedDict, total=False):
    src: Required[str]
    mimeType: str
    sizes: list[str]
    theme: Literal["light", "dark"]


class _Words(TypedDict, total=False):
    name: Required[str]
    title: str
    description: str
    icons: list[_Icon]
    _meta: dict[str, object]


class _Schema(TypedDict, total=False):
    properties: dict[str, dict[str, object]]
    required: list[str]


class _Arguments(_Schema, total=False):
    type: Required[Literal["object"]]


class _Hints(TypedDict, total=False):
    title: str
    readOnlyHint: bool
    destructiveHint: bool
    idempotentHint: bool
    openWorldHint: bool


class _Execution(TypedDict, total=False):
    taskSupport: Literal["required", "optional", "forbidden"]


class _Tool(_Words, total=False):
    inputSchema: Required[_Arguments]
    outputSchema: _Schema
    annotations: _Hints
    execution: _Execution


class _Marks(TypedDict, total=False):
    audience: list[Literal["user", "assistant"]]
    priority: Annotated[float, Meta(ge=0, le=1)]
    lastModified: Annotated[datetime, Meta(tz=True)]


class _Resource(_Words, total=False):
    mimeType: str
    size: Annotated[int, Meta(ge=0)]
    annotations: _Marks


class _Argument(TypedDict, total=False):
    name: Required[str]
    title: str
    description: str
    required: bool


class _Prompt(_Words, total=False):
    arguments: list[_Argument]


_SHAPES: Final[Mapping[str, tuple[object, str]]] = {
    "tools": (_Tool, "name"),
    "prompts": (_Prompt, "name"),
    "resources": (_Resource, "uri"),
    "resourceTemplates": (_Resource, "uriTemplate"),
}
"""What an entry of each list is, and the key that tells it from the others."""

_NOTHING: Final[Json] = {}
"""Stands for a part that is left out. It is known by its identity."""


def fitting(kind: str, entries: list[Json], drop: Callable[[str], None]) -> list[Json]:
    """Return the entries of one page as clients can read them.

    Args:
        kind: of the list.
        entries: as they came; what is no object stays.
        drop: called for each entry of which a part is left out.
    """
    shape, key = _SHAPES[kind]
    if _has(entries, list[shape]):  # type: ignore[valid-type]
        return entries
    found: list[Json] = []
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get(key), str) and not _has(entry, shape):
            drop(f"parts of {kind[:-1]} {str(entry[key])[:100]!r}, which are not as MCP has them")
            whole: dict[str, Json] = {**entry}
            if kind == "tools":
                whole["inputSchema"] = {**object_of(entry.get("inputSchema")), "type": "object"}
            elif not isinstance(entry.get("name"), str):
                whole["name"] = entry[key]
            entry = _mended(whole, shape)  # noqa: PLW2901
        found.append(entry)
    return found


def _has(value: object, shape: object) -> bool:
    with suppress(MsgspecError, ValueError, OverflowError, RecursionError):
        convert(value, shape)
        return True
    return False


def _mended(value: Json, shape: object) -> Json:
    """Return as much of a value as has a shape, or `_NOTHING`."""
    kind = get_origin(shape)
    if _has(value, shape):
        return value
    if kind is list and isinstance(value, list):
        found = [_mended(one, get_args(shape)[0]) for one in value]
        return [one for one in found if one is not _NOTHING]
    if kind is dict and isinstance(value, dict):
        # `false` is the schema of an argument that nobody may give.
        odd: Json = {"not": {}}
        return {
            k: v if isinstance(v, dict) else odd if v is False else {} for k, v in value.items()
        }
    if is_typeddict(shape) and isinstance(value, dict):
        hints = get_type_hints(shape, include_extras=True)
        parts = {
            key: _mended(one, _inner(hints[key])) if key in hints else one
            for key, one in value.items()
        }
        kept = {key: one for key, one in parts.items() if one is not _NOTHING}
        needed = shape.__required_keys__  # type: ignore[attr-defined]
        return kept if needed <= kept.keys() else _NOTHING
    return _NOTHING


def _inner(hint: object) -> object:
    return get_args(hint)[0] if get_origin(hint) is Required else hint
