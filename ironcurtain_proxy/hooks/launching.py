"""The command line that a client starts at each event.

The launcher is a shell's, because a hook that cannot start is skipped and the call runs: where the
interpreter is gone, the stub is gone or killed, it says so and denies by exit code 2. It costs
0.4 ms.
"""

import shlex
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

from ironcurtain_proxy.hooks import stub
from ironcurtain_proxy.hooks.events import HookClient

STUB: Final = Path(stub.__file__)
_WORDS: Final = (
    "IronCurtain: its hook cannot run, so nothing was run. Tell the user to look at "
    "ironcurtain-proxy doctor."
)
_GATE: Final = (
    '"$0" "$@"; s=$?; [ $s = 0 ] && exit 0; [ $s = 3 ] || echo "' + _WORDS + '" >&2; exit 2'
)
"""Before a call: whatever is no answer denies. 3: the stub has said why."""
_OTHER: Final = '"$0" "$@" || exit 0'
"""Where nothing can be denied, a failure stops nobody."""
_GATES: Final = frozenset(stub._GATES)  # noqa: SLF001  the stub stands alone, and has the one list


def hook_words(client: HookClient, event: str, state: Path) -> list[str]:
    """Return the command and its arguments, for a client that starts it without a shell."""
    script = _GATE if event in _GATES else _OTHER
    python = [sys.executable, "-I", "-S", str(STUB)]
    return ["/bin/sh", "-c", script, *python, str(state), client, event]


def hook_line(client: HookClient, event: str, state: Path) -> str:
    """Return the same as one line, for a client that hands it to a shell."""
    return "exec " + shlex.join(hook_words(client, event, state))


def is_ours(words: Collection[str] | str) -> bool:
    """Return whether a hook of a client's file is one of ours, of whatever version."""
    text = words if isinstance(words, str) else " ".join(words)
    return f"ironcurtain_proxy/hooks/{STUB.name}" in text
