"""Secrets in a server's answer, masked as they are in records, and nothing else changed."""

from typing import Final

import orjson

from ironcurtain_proxy.audit.redaction import is_suspicious, redact_text
from ironcurtain_proxy.audit.secret_names import is_telling
from ironcurtain_proxy.audit.secrets import MASK
from ironcurtain_proxy.model.json import Json

_BLOBS: Final = frozenset({"data", "blob"})
"""Base64 in an object of `_MEDIA`: a key would be found in it by chance."""
_MEDIA: Final = frozenset({"mimeType", "uri"})
"""The keys of images, sounds and resources, one of which stands beside their base64."""
_MOST_DEPTH: Final = 200


def redacted(value: Json, depth: int = _MOST_DEPTH) -> Json:
    """The value with every secret masked. A value that is nested too deeply is left out."""
    if isinstance(value, str):
        return _text(value)
    if depth == 0:
        return None
    if isinstance(value, list):
        return [redacted(inner, depth - 1) for inner in value]
    if isinstance(value, dict):
        blobs = frozenset() if _MEDIA.isdisjoint(value) else _BLOBS
        return {
            name: inner
            if name in blobs and isinstance(inner, str)
            else _member(name, inner, depth - 1)
            for name, inner in value.items()
        }
    return value


def _member(name: str, value: Json, depth: int) -> Json:
    if is_telling(name) and isinstance(value, str | int | float) and value not in {"", 0}:
        return value if isinstance(value, bool) else MASK
    return redacted(value, depth)


def _text(text: str) -> str:
    raw = orjson.dumps(text.encode("utf-8", "replace").decode())
    return redact_text(text) if is_suspicious(raw) else text
