"""The hooks of Codex CLI: its events, and exactly the answers that it takes.

Tried with 0.171.0 and 0.153.4. It runs a call whose answer it does not understand: one unknown
field, an empty reason, and `ask` do that. So its answers are a denial with a reason, or silence,
and a question that nobody of ours answers is a denial. Text that is written to a running terminal
has no event.
"""

import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import IO, Final

import orjson

from ironcurtain_proxy.facts.client_tools import ClientTools
from ironcurtain_proxy.hooks.claude import before_call, own_question
from ironcurtain_proxy.hooks.events import (
    WHY,
    AnswerForms,
    HookDialect,
    HookLine,
    table,
)
from ironcurtain_proxy.hooks.launching import is_ours
from ironcurtain_proxy.model.values import Json, list_of, object_of

_SECONDS: Final = 20.0
_MOST_BYTES: Final = 1 << 20
_LIST: Final = (
    b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"ironcurtain","version":"1"}}}\n'
    b'{"method":"initialized"}\n'
)


def _alarm(directory: Path, project: Path) -> str:
    """Return how many of our hooks the client skips, by its own list, if it can be asked."""
    listing: Json = {"id": 1, "method": "hooks/list", "params": {"cwds": [str(project)]}}
    try:
        with subprocess.Popen(
            ["codex", "app-server"],  # noqa: S607  its user's own, by the user's own PATH
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "CODEX_HOME": str(directory)},
        ) as server:
            assert server.stdin is not None  # noqa: S101  it is a pipe
            assert server.stdout is not None  # noqa: S101  as above
            late = Timer(_SECONDS, server.kill)
            late.start()
            try:
                server.stdin.write(_LIST + orjson.dumps(listing) + b"\n")
                server.stdin.flush()
                skipped = _untrusted_in(_answer_in(server.stdout))
            finally:
                late.cancel()
                server.kill()
    except OSError:
        return ""
    return f"CODEX SKIPS {skipped} OF OUR HOOKS: accept them in its /hooks" if skipped else ""


def _answer_in(lines: IO[bytes]) -> Json:
    """Return the result of request 1, or None if the program ends without it."""
    while line := lines.readline(_MOST_BYTES):
        with suppress(ValueError):
            message = orjson.loads(line)
            if message.get("id") == 1:
                found: Json = message.get("result")
                return found
    return None


def _untrusted_in(result: Json) -> int:
    places = [object_of(one) for one in list_of(object_of(result).get("data"))]
    hooks = [object_of(hook) for one in places for hook in list_of(one.get("hooks"))]
    ours = [one for one in hooks if is_ours(str(one.get("command")))]
    return sum(one.get("trustStatus") in {"untrusted", "modified"} for one in ours)


def _is_off(document: Mapping[str, object]) -> bool:
    found = _table(document, "features")
    # The second name is the older one, which both versions obey.
    return any(found.get(one, True) is not True for one in ("hooks", "codex_hooks"))


def _sets(document: Mapping[str, object]) -> dict[str, str]:
    places = [document, *_table(document, "profiles").values()]
    given = [_table(_table(one, "shell_environment_policy"), "set") for one in places]
    return {name: str(one[name]) for one in given for name in one}


def _table(document: object, name: str) -> dict[str, object]:
    found = document.get(name) if isinstance(document, Mapping) else None
    return found if isinstance(found, dict) else {}


CODEX_TOOLS: Final = ClientTools(
    client="codex",
    names=table("Bash Bash, apply_patch Patch, view_image Read"),
    paths=("path",),
    patches=("command", "patch", "input"),
)

DIALECT: Final = HookDialect(
    client="codex",
    our_tools=("mcp__ironcurtain",),
    tools=CODEX_TOOLS,
    asks="never",
    before=AnswerForms(silence=None, refuse=before_call("deny")),
    question=AnswerForms(
        silence=None,
        approve=own_question({"behavior": "allow"}),
        refuse=own_question({"behavior": "deny", "message": WHY}),
    ),
    entry=HookLine.hook,
    notice="Codex skips hooks that you have not trusted: accept them in its /hooks first",
    project_files=(".codex/config.toml",),
    server_files=((".codex/config.toml", "mcp_servers"),),
    is_off=_is_off,
    sets_in=_sets,
    alarm=_alarm,
)
