"""What of a message stands in HTTP headers, too, since 2026-07-28.

Method, name and marked arguments are repeated there, so that others on the way need not read the
message. On the way to a server headers are made from the message itself: a header that says what
the policy did not judge would be a way around it. From a client they must say what the message
says: else a router would let through what it refuses. Nothing here does I/O.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.operation import VERSION_KEY
from ironcurtain_proxy.model.server import ToolDefinition
from ironcurtain_proxy.model.values import Json, text_of

MirroredPaths = Mapping[tuple[str, ...], str]
"""Header names by the keys that lead to an argument."""

NAMING: Final = {
    **dict.fromkeys(("tools/call", "prompts/get"), "name"),
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
"""The parameter that `Mcp-Name` repeats, by method."""
_MIRRORED: Final = "x-mcp-header"
PARAMETER: Final = "mcp-param-"
"""How the header of an argument begins."""
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_WRAPPED: Final = re.compile(r"=\?base64\?.*\?=", re.DOTALL)
_PRIMITIVE: Final = frozenset({"string", "integer", "boolean"})
_WHOLE: Final = re.compile(r"-?[0-9]+")
_FRACTION: Final = re.compile(r"(?<=[0-9])\.0+\Z")
_LONGEST_HEADER: Final = 8192
_DEEPEST: Final = 64


def mirrored_arguments(tool: ToolDefinition) -> MirroredPaths | str:
    """Return which arguments of a tool stand in headers, or what is wrong with its annotations.

    An annotation counts only on a property that is reached through `properties` alone: elsewhere it
    depends on the value whether it applies.
    """
    found: dict[tuple[str, ...], str] = {}
    for path, schema in _positions((), tool.raw.get("inputSchema"), 0):
        if _MIRRORED not in schema:
            continue
        name, where = schema[_MIRRORED], ".".join(path or ())
        if not path:
            return f"{_MIRRORED} where it cannot be"
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            return f"{_MIRRORED} of {where} is no name of a header"
        if str(schema.get("type")) not in _PRIMITIVE:
            return f"{_MIRRORED} of {where} is not on a text, a whole number or a truth"
        if name.lower() in [one.lower() for one in found.values()]:
            return f"two arguments have the {_MIRRORED} {name}"
        found[path] = name
    return found


def _positions(
    path: tuple[str, ...] | None, schema: object, depth: int
) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Json]]]:
    """Yield each schema in a schema, with its path if it is reached by `properties` alone."""
    if isinstance(schema, dict):
        yield path, schema
    if depth < _DEEPEST:
        for way, below in _below(path, schema):
            yield from _positions(way, below, depth + 1)


def _below(
    path: tuple[str, ...] | None, schema: object
) -> Iterator[tuple[tuple[str, ...] | None, object]]:
    if isinstance(schema, list):
        yield from [(None, one) for one in schema]
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key == "properties" and isinstance(value, dict):
            for name, one in value.items():
                yield (None if path is None else (*path, name)), one
        elif key in _IN_MAPS and isinstance(value, dict):
            yield from [(None, one) for one in value.values()]
        elif key in _IN:
            yield None, value


_IN_MAPS: Final = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})
_IN: Final = frozenset(
    {
        *("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames"),
        *("unevaluatedProperties", "not", "if", "then", "else", "contentSchema"),
        *("allOf", "anyOf", "oneOf", "prefixItems"),
    }
)
"""Keys of JSON Schema whose values are schemas; data, such as `default`, is not looked at."""


def version_of(message: Mapping[str, Json]) -> str:
    """Return the version that a message names in its `_meta`, empty if it names none."""
    return text_of(value_at(message, "params", "_meta", VERSION_KEY))


def headers_of_message(
    message: Mapping[str, Json], mirrored: Mapping[str, MirroredPaths]
) -> dict[str, str]:
    """Return the headers that repeat a message.

    Args:
        message: as it is sent.
        mirrored: which arguments stand in headers, by the tool.

    Raises:
        DownstreamError: a header would be too long.
    """
    method, params = str(message.get("method")), message.get("params")
    found = {"mcp-protocol-version": version_of(message), "mcp-method": method}
    if method not in NAMING or not isinstance(params, dict):
        return found
    name = params.get(NAMING[method])
    found["mcp-name"] = header_value(str(name))
    if method == "tools/call":
        for path, token in mirrored.get(str(name), {}).items():
            text = _scalar(value_at(params, "arguments", *path))
            if text is not None:
                found[PARAMETER + token.lower()] = header_value(text)
    if any(len(value) > _LONGEST_HEADER for value in found.values()):
        raise DownstreamError(f"an argument that stands in a header is over {_LONGEST_HEADER} long")
    return found


def header_value(text: str) -> str:
    """Return a text as the value of a header, wrapped where no header could hold it as it is."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _WRAPPED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def decoded(value: str) -> str | None:
    """Return what a header says, which may be written as base64; `None` if that is not readable."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    text = value[len("=?base64?") : -len("?=")]
    with suppress(binascii.Error, UnicodeDecodeError):
        found = base64.b64decode(text, validate=True)
        if base64.b64encode(found).decode("ascii") == text:
            return found.decode("utf-8")
    return None


def mismatch(
    arguments: Json, paths: MirroredPaths, given: Mapping[str, Sequence[str]]
) -> str | None:
    """Return the header that does not say what an argument says; `None` if all do.

    Args:
        arguments: of the call.
        paths: which of them stand in headers.
        given: the values of each header that may be one of them, by its name in lower case.
    """
    for path, token in paths.items():
        values = given.get(PARAMETER + token.lower(), ())
        text = _scalar(value_at(arguments, *path))
        wanted = [] if text is None else [text]
        # A whole number may be written with a fraction of nothing.
        is_whole = text is not None and _WHOLE.fullmatch(text)
        said = [
            _FRACTION.sub("", one) if is_whole else one
            for one in map(decoded, values)
            if one is not None
        ]
        if len(values) != len(said) or said != wanted:
            return PARAMETER + token.lower()
    return None


def _scalar(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int | float) else None


def value_at(value: object, *way: str) -> object:
    """Return the value at the end of a way of keys, or None if there is none."""
    for key in way:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
