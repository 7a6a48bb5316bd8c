"""JSON that says one thing: no key of an object stands twice.

Of `{"decision": "denied", "decision": "approved"}` one reader sees the first and another the last.
Every file that grants something is read here.
"""

import json  # noqa: TID251  orjson keeps the last of two equal keys without a word
from collections import Counter

import orjson

from ironcurtain_proxy.model.values import Json


def strict_json(raw: bytes) -> Json:
    """Read a document.

    Raises:
        orjson.JSONDecodeError: it is not JSON, or a key stands twice in one object.
    """
    document: Json = orjson.loads(raw)
    try:
        # Integers stay text: Python refuses to convert very long ones.
        json.loads(raw, object_pairs_hook=_each_once, parse_int=str)
    except (ValueError, RecursionError) as error:
        raise orjson.JSONDecodeError(f"a key stands twice in an object: {error}", "", 0) from None
    return document


def _each_once(pairs: list[tuple[str, object]]) -> None:
    count = Counter([key for key, _ in pairs])
    if len(count) != len(pairs):
        raise ValueError(json.dumps(count.most_common(1)[0][0][:80]))
