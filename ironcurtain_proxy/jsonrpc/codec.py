"""Lines of JSON-RPC, decoded and encoded without loss.

A message must leave as it came. msgspec reads integers of any size as they are; orjson turns those
beyond 64 bits into floats, refuses to write them, and writes everything else fastest. So msgspec
reads, orjson writes, and what orjson refuses is written by the standard library. msgspec writes
results with a very long text, for which orjson asks the system for eight times its size.

Since 2026-07-28 method, name and marked arguments of a message stand in HTTP headers, too, so that
others on the way need not read the message. On the way to a server headers are made from the
message itself: a header that says what the policy did not judge would be a way around it. From a
client they must say what the message says: else a router would let through what it refuses. Nothing
here does I/O.
"""

import base64
import binascii
import json  # noqa: TID251  exact big integers, which orjson cannot keep
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Final, TypeAlias

import orjson
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, Encoder

from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.operation import VERSION_KEY
from ironcurtain_proxy.model.server import ToolDefinition
from ironcurtain_proxy.model.values import Json, lazy, text_of

MessageId: TypeAlias = int | str | float
"""A JSON-RPC id that can be answered: no null and no container. A fraction is bad manners only."""

_read: Final = Decoder().decode
_write_long: Final = Encoder().encode

INVALID_PARAMS: Final = -32602
"""The code of an error that both ends of a connection say."""

LONG_TEXT: Final = 4 << 20
"""Characters of one text from which on msgspec writes it in half of orjson's time."""

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark in UTF-8."""

_HALVES: Final = lazy(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
"""Escapes in order, so that a doubled backslash begins none; the group is half of a pair."""

_LINE_ENDS: Final = (
    ("\u2028", "\u2028".encode(), b"\\u2028"),
    ("\u2029", "\u2029".encode(), b"\\u2029"),
    ("\x85", "\x85".encode(), b"\\u0085"),
)

_MOST_DIGITS: Final = 4000
_MOST_OF_ID: Final = 18
_SHOWN: Final = 24

_EDGE: Final = 4096
"""Bytes at each end of an invalid line that are searched for its id."""

_VALUE: Final = rb'(-?[0-9]{1,18}|"(?:[^"\\\x00-\x1f]|\\.){0,200}")'
# The edge can cut a string; unmatched, each quote in it would be tried again.
_TOKEN: Final = lazy(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]')
_HEAD_ID: Final = lazy(rb"\s*:\s*" + _VALUE + rb"\s*[,}]")
# The last member of the outermost object, or the last but the version.
_TAIL_ID: Final = lazy(
    rb'[,{]\s*"id"\s*:\s*' + _VALUE + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
)


class Malformed(Struct, frozen=True):
    """A line that is no message."""

    reason: str
    """One lower-case phrase; holds nothing of the line."""
    id: MessageId | None = None
    """The id that the message seems to have, for an error answer."""
    is_json: bool = False
    """Whether it is JSON, but no object: an invalid request (-32600), no parse error (-32700)."""
    answered: tuple[MessageId, ...] = ()
    """The ids of the answers in it, if it is a batch: an array of messages."""


def decode(line: bytes) -> dict[str, Json] | Malformed:
    """Read one line. Of duplicate keys, the last counts."""
    try:
        message: object = _read(line)
    except RecursionError:
        return Malformed("nested too deeply", recover_id(line))
    except (MsgspecError, ValueError):
        return Malformed(_reason(line), recover_id(line))
    if isinstance(message, dict):
        return message
    answered = tuple(_answered(message)) if isinstance(message, list) else ()
    return Malformed("not a JSON object", is_json=True, answered=answered)


def decode_repaired(line: bytes) -> tuple[dict[str, Json], str] | None:
    """Read a line with a fault that concerns the characters of a text alone.

    Half of a surrogate pair, or a byte that is not UTF-8, becomes U+FFFD: servers cut texts at any
    place, and files hold anything. A byte order mark before the line is left out.

    Returns:
        The message, and what was done, as a phrase; or None: something else is wrong with it.
    """
    text = line.removeprefix(MARK)
    done = "began with a byte order mark" if text is not line else ""
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
        done = "held bytes that are not UTF-8"
    whole = _HALVES.sub(_whole, text)
    # Not read again as it is: a flood of lines with `NaN` would take the time of all others.
    message = None if whole == line else decode(whole)
    return (message, done or "held half a surrogate pair") if isinstance(message, dict) else None


def odd_number(line: bytes) -> str | None:
    """Return where a line holds a number that JSON cannot express, in words, or None.

    Python writes `NaN` and `Infinity`; some write more digits than any number has.
    """
    try:
        message: object = json.loads(
            line.decode("utf-8", "replace"),
            strict=False,
            parse_constant=_OddNumber,
            parse_float=lambda text: float(text) if isfinite(float(text)) else _OddNumber(text),
            parse_int=lambda text: int(text) if len(text) < _MOST_DIGITS else _OddNumber(text),
        )
    except (ValueError, RecursionError):
        return None
    waiting: list[tuple[str, object]] = [("", message)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, _OddNumber):
            said = (
                value.text if len(value.text) <= _SHOWN else f"a number of {len(value.text)} digits"
            )
            return f"{place or 'it'} is {said}, which JSON cannot express"
        if isinstance(value, list):
            waiting += [(f"{place}[{n}]", one) for n, one in enumerate(value)][::-1]
        elif isinstance(value, dict):
            waiting += [(_below(place, key), one) for key, one in value.items()][::-1]
    return None


def encode_value(value: Mapping[str, Json], *, has_long_text: bool = False) -> bytes | None:
    """Encode an object without blanks and newline, or None if only `encode` can write it.

    The result can be part of a message as an `orjson.Fragment`.

    Args:
        value: the object.
        has_long_text: whether one of its texts has `LONG_TEXT` characters. Both ways write the same
            but for numbers, such as `1e+16` and `1e16`.
    """
    try:
        return _write_long(value) if has_long_text else orjson.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None


def encode_result(result: Mapping[str, Json]) -> bytes | None:
    """Encode a result that came in a line of `LONG_TEXT` bytes or more, as `encode_value` does."""
    return encode_value(result, has_long_text=_has_long_text(result))


def encode(message: Mapping[str, object]) -> bytes:
    """Encode one message as one line, with its newline.

    Raises:
        ValueError: JSON cannot express it, or it is nested some hundreds of levels deep.
    """
    try:
        line = orjson.dumps(message, _plain, orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return _encode_slowly(message)
    return line if line.isascii() else escaped(line)


def escaped(line: bytes) -> bytes:
    """Return JSON with the characters escaped at which some readers end a line.

    U+2028, U+2029 and U+0085 may stand in a text. Python's `splitlines` and others end a line
    there, and lose the message.
    """
    for char, raw, escape in _LINE_ENDS:
        # A byte or a character is found ten times faster than three bytes.
        if raw[-1] in line and raw[0] in line and char in line.decode():
            line = line.replace(raw, escape)
    return line


def encode_text(text: str) -> bytes:
    """Encode one text, with its quotes."""
    return encode({"": text})[len('{"":') : -len("}\n")]


def written_id(request_id: MessageId) -> bytes:
    """Encode the id of a message."""
    return encode_text(request_id) if isinstance(request_id, str) else repr(request_id).encode()


def recover_id(head: bytes, tail: bytes | None = None) -> MessageId | None:
    """Return the id of an invalid message, or None.

    `head` is the line, or its beginning if `tail` is its end. Only an `id` of the outermost object
    counts: one inside a result is whatever the sender put there.
    """
    if tail is None:
        tail = head
        exact = _lenient_id(head)
        if exact is not None:
            return exact
    first = _head_id(head[:_EDGE])
    return _tail_id(tail[-_EDGE:]) if first is None else first


def message_id(value: object) -> MessageId | None:
    """Return the value if it is a valid id, else None."""
    if isinstance(value, str):
        return value
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def answer_id(value: object) -> MessageId | None:
    """Return the id that an answer of a server names; ours are whole numbers.

    13.0 is 13: some languages know no other numbers than floats. So is "13": some servers know no
    other ids than texts.
    """
    if isinstance(value, str):
        is_ours = value.isascii() and value.isdecimal() and len(value) <= _MOST_OF_ID
        return int(value) if is_ours and not value.startswith("0") else value
    return int(value) if isinstance(value, float) and value.is_integer() else message_id(value)


class _OddNumber(Struct):
    """A number that JSON cannot express."""

    text: str


def _whole(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape[1] is None else b"\\ufffd"


def _below(place: str, key: str) -> str:
    # The key is a server's text, and goes to people and models.
    known = key if re.fullmatch(r"[A-Za-z_][\w-]{0,60}", key, re.ASCII) else "…"
    return f"{place}.{known}" if place else known


def _answered(messages: list[object]) -> Iterator[MessageId]:
    for one in messages:
        if isinstance(one, dict) and ("result" in one or "error" in one):
            found = answer_id(one.get("id"))
            if found is not None:
                yield found


def _has_long_text(result: Mapping[str, Json]) -> bool:
    blocks = result.get("content")
    first = blocks[0] if isinstance(blocks, list) and blocks else None
    text = first.get("text", first.get("data")) if isinstance(first, dict) else None
    return isinstance(text, str) and len(text) >= LONG_TEXT


def _encode_slowly(message: Mapping[str, object]) -> bytes:
    # Escapes keep a lone surrogate (of a file name, say) within ASCII.
    try:
        text = json.dumps(
            message, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_plain
        )
    except (TypeError, RecursionError) as error:
        raise ValueError("the message cannot be written as JSON") from error
    return text.encode("ascii") + b"\n"


def _lenient_id(line: bytes) -> MessageId | None:
    """Find the id in a line that is JSON but for encoding, numbers or control characters.

    An id with half of a surrogate pair is none: a strict client could not read the answer to it.
    """
    try:
        message: object = json.loads(line.decode("utf-8", "replace"), strict=False)
        found = message_id(message.get("id")) if isinstance(message, dict) else None
        str(found).encode()
    except (ValueError, RecursionError):
        return None
    return found


def _head_id(head: bytes) -> MessageId | None:
    depth = 0
    for token in _TOKEN.finditer(head):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
            case b'"id"' if depth == 1:
                found = _HEAD_ID.match(head, token.end())
                if found is not None:
                    return _read_id(found[1])
            case _:
                pass
    return None


def _tail_id(tail: bytes) -> MessageId | None:
    found = _TAIL_ID.search(tail)
    return None if found is None else _read_id(found[1])


def _read_id(text: bytes) -> MessageId | None:
    try:
        return message_id(orjson.loads(text))
    except ValueError:
        return None


_REASONS: Final = {
    "UTF-8": "not UTF-8",
    "surrogate": "half a surrogate pair",
    "infinity": "a number too large",
    # As where its sender ended in the middle of it.
    "end of data": "cut off in the middle",
}
"""What is wrong with a line, by a word of the library's error."""


def _reason(line: bytes) -> str:
    """Return the fault of an unreadable line, without quotations from it."""
    try:
        orjson.loads(line)
    except ValueError as error:
        text = str(error)
    else:
        # Integers of thousands of digits, which it turns into floats.
        return "a number too large"
    return next((reason for word, reason in _REASONS.items() if word in text), "not JSON")


def _plain(value: object) -> object:
    """Convert read-only views of objects, which neither library encodes."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


# --- headers

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
_HEADER_TOKEN: Final = lazy(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_PLAIN: Final = lazy(r"[\x20-\x7e]*")
_WRAPPED: Final = lazy(r"=\?base64\?.*\?=", re.DOTALL)
_PRIMITIVE: Final = frozenset({"string", "integer", "boolean"})
_WHOLE: Final = lazy(r"-?[0-9]+")
_FRACTION: Final = lazy(r"(?<=[0-9])\.0+\Z")
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
        if not isinstance(name, str) or _HEADER_TOKEN.fullmatch(name) is None:
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
        for way, below in _member_below(path, schema):
            yield from _positions(way, below, depth + 1)


def _member_below(
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
