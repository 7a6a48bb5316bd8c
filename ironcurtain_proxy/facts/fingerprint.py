"""Digests that identify equal calls and equal servers."""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

import orjson

from ironcurtain_proxy.model.json import Arguments
from ironcurtain_proxy.model.server import ServerSpec


def canonical(server: str, tool: str, arguments: Arguments) -> bytes:
    """Server, tool and arguments as JSON text, independent of the order of keys."""
    call = [server, tool, arguments]
    try:
        return orjson.dumps(call, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(call, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def fingerprint(server: str, tool: str, arguments: Arguments) -> str:
    """SHA-256 of the canonical text, in hexadecimal."""
    return sha256(canonical(server, tool, arguments)).hexdigest()


def pin_digest(spec: ServerSpec, workspace: str | None) -> str:
    """The identity of a server for what it says of itself: the same in each workspace.

    An argument or variable that is the workspace itself is left out of it. One that is a file in
    there is not: it may be the server's code, which is another in each.
    """
    if workspace is None:
        return server_digest(spec)

    def plain(text: str) -> str:
        option, _, path = text.rpartition("=")
        is_it = path.rstrip("/") == workspace and (not option or option.startswith("-"))
        # No argument holds NUL, so this stands for nothing else.
        return f"{option}\0workspace" if is_it else text

    args = tuple([plain(one) for one in spec.args])
    env = {name: plain(one) for name, one in spec.env.items()}
    return server_digest(replace(spec, args=args, env=env), workspace)


def server_digest(spec: ServerSpec, workspace: str | None = None) -> str:
    """The identity of a server without its credentials: a name can get another meaning.

    Args:
        spec: the server.
        workspace: of the session. A server that runs there is the same in each workspace; what
            holds in one workspace alone is for the grants to say.
    """
    sandbox = spec.sandbox
    return fingerprint(
        spec.name,
        spec.annotations,
        {
            "command": spec.command,
            **({} if spec.remote is None else {"url": spec.remote.url}),
            "args": list(spec.args),
            "env": dict(spec.env),
            "cwd": "@workspace" if spec.cwd is not None and spec.cwd == workspace else spec.cwd,
            # None is the default, False is none: not the same.
            "sandbox": dict(sandbox) if isinstance(sandbox, Mapping) else sandbox,
        },
    )
