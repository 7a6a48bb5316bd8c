"""The command lines that a client starts: at each event, and for each command of its shell.

The launcher is a shell's, because a hook that cannot start is skipped and the call runs: where the
interpreter is gone, the stub is gone or killed, it says so and denies by exit code 2. It costs
0.4 ms.
"""

import os
import shlex
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.hooks import prefix, stub
from ironcurtain_proxy.hooks.events import GATES, HookDialect, Refuse

INTERPRETER: Final = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
"""The interpreter of the stub. That of a virtual environment takes a third longer to start, because
it looks for its libraries first, of which the stub needs none."""
STUB: Final = Path(stub.__file__)
_WORDS: Final = (
    "IronCurtain: its hook cannot run, so nothing was run. Tell the user to look at "
    "ironcurtain-proxy doctor."
)
_GATE: Final = f'"$0" "$@" && exit 0; echo "{_WORDS}" >&2; exit 2'
"""Before a call: whatever is no answer denies."""
_OTHER: Final = '"$0" "$@" || exit 0'
"""Where nothing can be denied, a failure stops nobody."""
_IN_TIME: Final = 10
"""Seconds by which an answer comes before the client stops waiting."""
HOME: Final = "~"
"""The directory of the proxy's own files of whoever starts the hook, in an administrator's file."""


def hook_words(
    dialect: HookDialect, event: str, state: Path, *, observes: bool = False
) -> list[str]:
    """Return the command and its arguments, for a client that starts it without a shell.

    Args:
        dialect: of the client.
        event: of the client, or `check`, which asks nobody.
        state: the directory of the proxy's own files, or `HOME`.
        observes: whether nothing is denied.
    """
    kind, seconds = dialect.events.get(event, ("check", 0))
    denial = ""
    if kind in GATES and not observes:
        denial = orjson.dumps(dialect.answer(event, Refuse("%s"))).decode()
        seconds -= _IN_TIME
    variable = dialect.prefix.variable if dialect.prefix else "-"
    words = [str(state), dialect.client, event, sys.executable, kind, str(seconds)]
    words += [variable, denial]
    script = _GATE if denial else _OTHER
    return ["/bin/sh", "-c", script, INTERPRETER, "-I", "-S", str(STUB), *words]


def prefix_file(state: Path, client: str) -> Path:
    """Return the program that starts the commands of a client's shell."""
    return state / f"run-{client}"


def prefix_text(state: Path) -> str:
    """Return that program: a client's setting names a file, and no arguments."""
    words = [INTERPRETER, "-X", "utf8", "-I", "-S", prefix.__file__, str(state)]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def is_ours(words: Collection[str] | str) -> bool:
    """Return whether a hook of a client's file is one of ours, of whatever version."""
    text = words if isinstance(words, str) else " ".join(words)
    return f"ironcurtain_proxy/hooks/{STUB.name}" in text
