"""What makes two calls the same call, and two servers the same server."""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from collections.abc import Mapping
from hashlib import sha256

import orjson

from ironcurtain_proxy.model.json import Arguments
from ironcurtain_proxy.model.server import ServerSpec


def fingerprint(server: str, tool: str, arguments: Arguments) -> str:
    """SHA-256 in hexadecimal over server, tool and arguments, whatever the order of their keys."""
    call = [server, tool, arguments]
    try:
        data = orjson.dumps(call, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        data = json.dumps(call, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    return sha256(data).hexdigest()


def server_digest(spec: ServerSpec) -> str:
    """What a server is, but for its credentials: a name alone may lead somewhere else tomorrow."""
    sandbox = spec.sandbox
    return fingerprint(
        spec.name,
        spec.annotations,
        {
            "command": spec.command,
            "args": list(spec.args),
            "env": dict(spec.env),
            "cwd": spec.cwd,
            # None is the default, False is none: not the same.
            "sandbox": dict(sandbox) if isinstance(sandbox, Mapping) else sandbox,
        },
    )
