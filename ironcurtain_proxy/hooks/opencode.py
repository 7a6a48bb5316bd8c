"""The hooks of opencode: what its plugin of ours (`opencode_plugin.js`) says, and is answered.

Tried with 1.18.33. The client has no hooks in a file but programs of its own, which its plugin
starts; so the form of the events is ours. A plugin can deny a call, by an error, and nothing else:
a question that nobody of ours answers is a denial. A sub-agent has a session of its own, and its
prompt, which the model wrote, comes like a user's.
"""

import re
from pathlib import Path
from typing import Final

from ironcurtain_proxy.facts.client_tools import ClientTools
from ironcurtain_proxy.hooks.events import (
    WHY,
    AnswerForms,
    FieldNames,
    HookDialect,
    table,
)
from ironcurtain_proxy.hooks.paths import PathForm

_BACKSLASH: Final = re.compile(r"\\")
"""Its search takes it for a slash, and searches the directory above what is not there."""
_SETTINGS: Final = tuple(
    f"{place}opencode.json{end}" for place in ("", ".opencode/") for end in ("", "c")
)
OPENCODE_TOOLS: Final = ClientTools(
    client="opencode",
    names=table(
        """
        bash Bash, read Read, write Write, edit Edit, glob Glob, grep Grep, list LS,
        webfetch WebFetch, apply_patch Patch
        """
    ),
    paths=("filePath", "path"),
    directories=("workdir",),
    texts=table("content content, oldString old_string, newString new_string, pattern pattern"),
    patches=("patchText",),
)

DIALECT: Final = HookDialect(
    client="opencode",
    fields=FieldNames(
        tool="tool", given="args", id="id", agent="agent", agent_kind="agentKind", result="result"
    ),
    our_tools=("ironcurtain_",),
    tools=OPENCODE_TOOLS,
    paths=PathForm(decoded=_BACKSLASH, sought=lambda tool, _: tool == "Grep"),
    asks="never",
    before=AnswerForms(silence={"decision": "allow"}, refuse={"decision": "deny", "reason": WHY}),
    entry=lambda line: {"command": [*line.words]},
    has_failed=lambda payload: bool(payload.get("exit")),
    plugin=("plugins/ironcurtain.js", Path(__file__).with_name("opencode_plugin.js")),
    project_files=_SETTINGS,
    server_files=tuple((name, "mcp") for name in _SETTINGS),
    sets_in=lambda document: {"SHELL": str(document["shell"])} if "shell" in document else {},
)
