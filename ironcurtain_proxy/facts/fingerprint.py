"""What makes two calls the same call."""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from hashlib import sha256

import orjson

from ironcurtain_proxy.model.json import Arguments


def fingerprint(server: str, tool: str, arguments: Arguments) -> str:
    """SHA-256 in hexadecimal over server, tool and arguments, whatever the order of their keys."""
    call = [server, tool, arguments]
    try:
        data = orjson.dumps(call, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        data = json.dumps(call, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    return sha256(data).hexdigest()
