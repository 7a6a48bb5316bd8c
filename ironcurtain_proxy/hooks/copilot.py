"""The hooks of GitHub Copilot CLI: its events, and exactly the answers that it takes.

Tried with 1.0.102. An answer that it does not understand lets the call run; an exit code other than
0 denies it. Calls have no id. `permissionRequest` comes before every call, also where nobody would
be asked, so it is not hooked. A prompt also comes for each sub-agent, written by the model, and a
repository's hooks may write one: neither is the user's.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.reading.reading import read_text
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.client_tools import ClientTools
from ironcurtain_proxy.hooks.events import (
    WHY,
    AnswerForms,
    FieldNames,
    HookDialect,
    directory_of,
    table,
    text_of,
)
from ironcurtain_proxy.hooks.paths import PathForm
from ironcurtain_proxy.model.values import Arguments, Json, object_of

_MOST_FILES: Final = 100
_EXIT: Final = re.compile(r"<shellId: \S+ completed with exit code [1-9]\d*>\Z")
"""How the text of a command that failed ends."""
_SETTINGS: Final = tuple(
    f"{place}/settings{kind}.json"
    for place in (".github/copilot", ".claude")
    for kind in ("", ".local")
)
"""A project's own settings, which may hold hooks, too."""


def _prompt(payload: Arguments) -> str:
    """Return the user's words; empty if a repository's own hooks may have written them."""
    with suppress(OSError, ConfigurationError):
        files = [one for one in _hook_files(payload) if one.exists()]
        return (
            "" if any('"prompt"' in read_text(one) for one in files) else text_of(payload, "prompt")
        )
    return ""


def _hook_files(payload: Arguments) -> Iterator[Path]:
    here = Path(directory_of(payload))
    for above in (here, *here.parents):
        yield from islice((above / ".github/hooks").glob("*.json"), _MOST_FILES)
        yield from [above / name for name in _SETTINGS]


def _shown(payload: Arguments) -> str:
    return str(object_of(payload.get("toolResult")).get("textResultForLlm"))


def _before(decision: str) -> Json:
    return {"permissionDecision": decision, "permissionDecisionReason": WHY}


COPILOT_TOOLS: Final = ClientTools(
    client="copilot",
    names=table(
        """
        bash Bash, view Read, create Write, edit Edit, glob Glob, grep Grep,
        web_fetch WebFetch, apply_patch Patch
        """
    ),
    paths=("path",),
    places="paths",
    texts=table("file_text content, old_str old_string, new_str new_string, pattern pattern"),
    patches=("input", "patch"),
)

DIALECT: Final = HookDialect(
    client="copilot",
    # Older versions write the arguments as JSON.
    fields=FieldNames(
        tool="toolName",
        given="toolArgs",
        agent="agentId",
        agent_kind="agentType",
        result="toolResult",
        is_json=True,
    ),
    our_tools=("ironcurtain-",),
    tools=COPILOT_TOOLS,
    paths=PathForm(sought=lambda tool, path: tool in {"Glob", "Grep"} and " " in path),
    asks="always",
    before=AnswerForms(approve=_before("allow"), ask=_before("ask"), refuse=_before("deny")),
    document={"version": 1},
    entry=lambda line: {"type": "command", "bash": line.text, "timeoutSec": line.seconds},
    project_files=_SETTINGS,
    server_files=((".mcp.json", "mcpServers"), (".vscode/mcp.json", "servers")),
    is_off=lambda document: document.get("disableAllHooks", False) is not False,
    prompt=_prompt,
    has_failed=lambda payload: _EXIT.search(_shown(payload)) is not None,
    # It comes after each turn of a session without a terminal, too.
    is_last=lambda reason: reason == "user_exit",
)
