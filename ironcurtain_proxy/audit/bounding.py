"""Values of a record: bounded, redacted and converted to valid JSON.

Arguments come from the agent and errors from a server. They can have any size and depth, integers
of a thousand digits and lone surrogates. Every value is recorded in some form, at bounded cost.
"""

import json  # noqa: TID251  orjson refuses integers beyond 64 bits and lone surrogates
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.audit.commands import (
    brings_contents,
    is_ssn_name,
    is_telling,
    is_telling_option,
    writes_credentials,
)
from ironcurtain_proxy.audit.redaction import (
    MARGIN,
    is_suspicious,
    redact_beginning,
    redact_integer,
    redact_text,
)
from ironcurtain_proxy.audit.secrets import MASK
from ironcurtain_proxy.model.values import Arguments

VALUE_LIMIT: Final = 8192
"""Bytes of one value; a longer value is cut, and its digest is recorded."""

_DEPTH_LIMIT: Final = 48
_INTEGER_LIMIT: Final = 1 << 1023
"""The largest magnitude of an integer. Many readers of JSON take a larger one for infinity, and
refuse the line; `verify` does, too."""


class RecordLimits(Struct, frozen=True):
    """The limits of one record."""

    value: int = VALUE_LIMIT
    """Bytes of one value."""
    text: int = 64 * 1024
    """Characters of all texts and long numbers together. Each is written as up to 6 bytes."""
    nodes: int = 4096


WHOLE: Final = RecordLimits()
SHORT: Final = RecordLimits(value=2048, text=4096, nodes=256)
"""The limits for denied calls, of which an agent can make any number."""


class Shaped(Struct, frozen=True):
    """The recorded form of arguments."""

    raw: bytes
    """Compact JSON."""
    size: int | None = None
    """Bytes of the whole as compact JSON, if the structure itself had to be cut."""
    sha256: str | None = None


def shape_arguments(
    arguments: Arguments, *, redaction: bool, limits: RecordLimits = WHOLE
) -> Shaped:
    """Convert the arguments of a call to JSON text of bounded size.

    Nearly all arguments are small, valid JSON and look like no secret. For these, one pass of the
    encoder and `is_suspicious` is enough.
    """
    raw: bytes | None = None
    for value in arguments.values():
        if type(value) is str and len(value) > limits.value:
            break
    else:
        raw = _encoded(arguments)
        small = raw is not None and len(raw) <= limits.value
        if raw is not None and small and not (redaction and is_suspicious(raw)):
            return Shaped(raw)
    shaper = _Shaper(redaction=redaction, limits=limits)
    shaped = orjson.dumps(shaper.mapping(arguments, 0))
    if not shaper.cut:
        return Shaped(shaped)
    whole = raw or compact_json(arguments)
    return Shaped(shaped, len(whole), sha256(whole).hexdigest()) if whole else Shaped(shaped, 0, "")


def shape_text(text: str, *, redaction: bool, limits: RecordLimits = WHOLE) -> str:
    """Bound and redact a single text: a reason, an error, a name."""
    if len(text) <= limits.value:
        try:
            raw = text.encode()
        except UnicodeEncodeError:
            pass
        else:
            if len(raw) <= limits.value and not (redaction and is_suspicious(raw)):
                return text
    return _Shaper(redaction=redaction, limits=limits).text(text)


def shape_value(value: object, *, redaction: bool) -> object:
    """Bound and redact any value, so that orjson can encode it."""
    if isinstance(value, str):
        return shape_text(value, redaction=redaction)
    try:
        raw = orjson.dumps(value)
    except TypeError:
        pass
    else:
        if len(raw) <= WHOLE.value and not (redaction and is_suspicious(raw)):
            return value
    return _Shaper(redaction=redaction).value(value, 0)


def shape_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Convert an object of our own to one that orjson can encode. Nothing is redacted."""
    return _Shaper(redaction=False).mapping(fields, 0)


def compact_json(value: Mapping[str, object]) -> bytes | None:
    """Compact JSON text of any size, or None if JSON cannot express the value."""
    return _encoded(value) or _encoded_slowly(value)


def _encoded(value: Mapping[str, object]) -> bytes | None:
    try:
        return orjson.dumps(value if type(value) is dict else dict(value))
    except TypeError:
        return None


def _encoded_slowly(value: Mapping[str, object]) -> bytes | None:
    try:
        return json.dumps(dict(value), separators=(",", ":"), default=repr).encode()
    except (TypeError, ValueError, RecursionError):
        return None


class _Shaper:
    """Walks one value, and counts what may still be written, to bound the whole record."""

    __slots__ = ("_nodes", "_redaction", "_text", "_value", "cut")

    def __init__(self, *, redaction: bool, limits: RecordLimits = WHOLE) -> None:
        self._redaction = redaction
        self._nodes = limits.nodes
        self._text = limits.text
        self._value = limits.value
        self.cut = False
        """Whether anything but the inside of a text was left out."""

    def value(self, value: object, depth: int, *, ssn_expected: bool = False) -> object:
        match value:
            case str():
                return self.text(value, ssn_expected=ssn_expected)
            case None | bool() | float():
                return value
            case int():
                return self._integer(value, ssn_expected=ssn_expected)
            case _:
                return self._container(value, depth)

    def _container(self, value: object, depth: int) -> object:
        if depth >= _DEPTH_LIMIT:
            self.cut = True
            return f"…[cut, nested deeper than {_DEPTH_LIMIT}]"
        if isinstance(value, list | tuple):
            return self._array(value, depth)
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        return f"…[{type(value).__name__}]"

    def mapping(self, mapping: Mapping[str, object], depth: int) -> dict[str, object]:
        shaped: dict[str, object] = {}
        pair = self._redaction and _is_telling_pair(mapping)
        writes = self._redaction and writes_credentials(mapping)
        for count, (name, value) in enumerate(mapping.items()):
            if not self._take_node():
                shaped["…"] = f"[cut {len(mapping) - count} keys]"
                break
            key = self._unused_key(shaped, self.text(str(name)))
            tells = is_telling(str(name)) or (pair and name == "value")
            if self._redaction and (tells or (writes and brings_contents(str(name)))):
                shaped[key] = _masked(value)
            else:
                expected = self._redaction and is_ssn_name(str(name))
                shaped[key] = self.value(value, depth + 1, ssn_expected=expected)
        return shaped

    def text(self, text: str, *, ssn_expected: bool = False) -> str:
        length = len(text)
        if min(length, self._value) > self._text:
            self.cut = True
            return f"…[cut {length} characters]"
        self._text -= min(length, self._value)
        if length > self._value // 4:
            raw = text.encode("utf-8", "surrogatepass")
            if len(raw) > self._value:
                return self._beginning(text, raw)
        text = _without_surrogates(text)
        return redact_text(text, ssn_expected=ssn_expected) if self._redaction else text

    def _beginning(self, text: str, raw: bytes) -> str:
        """Return the beginning of a text: a cut before redaction bounds what patterns cost."""
        kept = raw[: self._value].decode("utf-8", "ignore")
        shown = _without_surrogates(kept)
        if self._redaction:
            window = _without_surrogates(text[: len(kept) + MARGIN])
            if is_suspicious(window.encode()):
                shown = redact_beginning(window, len(shown))
        return f"{shown}…[cut {len(raw) - self._value} bytes, sha256 {sha256(raw).hexdigest()}]"

    def _integer(self, value: int, *, ssn_expected: bool) -> object:
        if -(1 << 63) <= value < 1 << 64:
            return redact_integer(value, ssn_expected=ssn_expected) if self._redaction else value
        if abs(value) < _INTEGER_LIMIT:
            digits = str(int(value))
            if len(digits) <= self._text:
                self._text -= len(digits)
                return orjson.Fragment(digits.encode())
        self.cut = True
        return f"…[integer of {value.bit_length()} bits]"

    def _array(self, items: Sequence[object], depth: int) -> list[object]:
        shaped: list[object] = []
        previous: object = None
        for count, item in enumerate(items):
            if not self._take_node():
                shaped.append(f"…[cut {len(items) - count} items]")
                break
            # `["--password", "hunter2"]`: an argument list for a command.
            if self._redaction and isinstance(previous, str) and is_telling_option(previous):
                shaped.append(_masked(item))
            else:
                shaped.append(self.value(item, depth + 1))
            previous = item
        return shaped

    def _take_node(self) -> bool:
        self._nodes -= 1
        if self._nodes < 0:
            self.cut = True
        return self._nodes >= 0

    def _unused_key(self, taken: dict[str, object], key: str) -> str:
        """Return a key that is free: redaction can make two keys equal, and both are recorded."""
        if key not in taken:
            return key
        number = len(taken)
        while f"{key}#{number}" in taken:
            number += 1
        return f"{key}#{number}"


def _is_telling_pair(mapping: Mapping[str, object]) -> bool:
    """Return whether a pair is one of a secret: `{"name": "Authorization", "value": "…"}`."""
    name = mapping.get("name", mapping.get("key"))
    return "value" in mapping and isinstance(name, str) and is_telling(name)


def _masked(value: object) -> object:
    """Return the masked value of a telling key.

    True, false, null and empty values stay: they are no secrets.
    """
    return value if value is None or isinstance(value, bool) or value in ("", 0) else MASK


def _without_surrogates(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()
