"""The hooks of Cursor: its events, and exactly the answers that it documents.

Written after the documents of Cursor 3, and tried with inputs of that form only. `ask` is lost in
its Auto-review mode, so a question that nobody of ours answers is a denial. `preToolUse` comes
before every tool; the older events before a command and a read would judge the same call twice.
"""

import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

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
from ironcurtain_proxy.hooks.launching import places_of
from ironcurtain_proxy.hooks.paths import ESCAPE, PathForm
from ironcurtain_proxy.model.values import Arguments, list_of, word_list

_SERVER: Final = "MCP:"
"""The beginning of the names of servers' tools. Which server it is, only the event before the
server's call says."""
_HOOKS: Final = ".cursor/hooks.json"
_PATHS: Final = word_list(
    "file_path path target_file target_notebook target_directory working_directory"
)


def _server(payload: Arguments) -> str:
    """Return the name of a server's tool: one of this proxy is judged when it arrives there."""
    name = text_of(payload, "tool_name")
    with suppress(ValueError):
        program = (shlex.split(text_of(payload, "command")) or [""])[0]
        own = Path(sys.prefix) / "bin/ironcurtain-proxy"
        if program.startswith("/") and os.path.realpath(program) == os.path.realpath(own):
            return f"{_SERVER}{name}"
    return f"server {name}"


def _directory(payload: Arguments) -> str:
    """Return the directory of an event: its own, or the only one of the window.

    Raises:
        UnreadableEventError: it has none, and the window has several.
    """
    roots = list_of(payload.get("workspace_roots"))
    # Where a relative path is in one of several, nothing says in which.
    only = roots[0] if len(roots) == 1 else None
    return directory_of({"cwd": text_of(payload, "cwd") or only})


def _prompt(payload: Arguments) -> str:
    """Return the user's words; empty if a project's own hooks may have written them.

    What such a hook answers at the end of a turn (`followup_message`) comes as a prompt.
    """
    roots = [Path(str(one)) for one in list_of(payload.get("workspace_roots"))]
    above = [place for root in roots for place in places_of(root, Path.home())]
    is_hooked = any(os.path.lexists(place / _HOOKS) for place in above)
    return "" if is_hooked else text_of(payload, "prompt")


CURSOR_TOOLS: Final = ClientTools(
    client="cursor",
    names=table(
        """
        Shell Bash, Read Read, ReadFile Read, Write Write, TabWrite Write, Edit Edit,
        StrReplace Edit, EditNotebook Edit, Delete Delete, Grep Grep, Glob Glob, LS LS,
        ListDir LS, WebFetch WebFetch
        """
    ),
    paths=_PATHS,
    directories=_PATHS,
    texts=table(
        """
        content content, contents content, old_string old_string, new_string new_string,
        pattern pattern, glob_pattern pattern
        """
    ),
)

DIALECT: Final = HookDialect(
    client="cursor",
    gate_seconds=60,
    fields=FieldNames(
        agent="subagent_id", agent_kind="subagent_type", error="error_message", result="tool_output"
    ),
    our_tools=(_SERVER,),
    tools=CURSOR_TOOLS,
    paths=PathForm(decoded=ESCAPE),
    asks="never",
    before=AnswerForms(
        silence={"permission": "allow"},
        refuse={"permission": "deny", "user_message": WHY, "agent_message": WHY},
    ),
    document={"version": 1},
    # What fails would let the call run, unless it says so.
    entry=lambda line: {"command": line.text, "timeout": line.seconds, "failClosed": line.denies},
    project_files=(_HOOKS,),
    # Where the answers of two hooks differ, that of the project's counts.
    overrules=lambda document: bool(document.get("hooks")),
    directory=_directory,
    server=_server,
    prompt=_prompt,
    # The program has one process for many conversations.
    is_last=lambda _reason: False,
)
