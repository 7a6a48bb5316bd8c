"""The hooks of Gemini CLI: its events, and exactly the answers that it documents.

Tried with 0.61.0 and 0.51.0. It gives calls no id, so the end of one is known by its tool and
arguments. `ask` opens its dialog; without a terminal the program would hang, so `ask` is answered
only where it has one.
"""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.facts.client_tools import ClientTools
from ironcurtain_proxy.hooks.events import (
    WHY,
    AnswerForms,
    HookDialect,
    HookLine,
    event_kinds,
    table,
)
from ironcurtain_proxy.hooks.paths import ESCAPE, PathForm
from ironcurtain_proxy.model.values import Arguments, Json, object_of, words


def _entry(line: HookLine) -> Json:
    hook: Json = {
        "type": "command",
        "command": line.text,
        "name": "ironcurtain",
        "timeout": 1000 * line.seconds,
    }
    return {"hooks": [hook]}


def _is_off(document: Mapping[str, object]) -> bool:
    # It takes `"false"` for false, and a variable's value for `"$NAME"`.
    chosen = object_of(document.get("hooksConfig", {}))
    return chosen.get("enabled", True) is not True or bool(chosen.get("disabled"))


def _has_failed(payload: Arguments) -> bool:
    response = payload.get("tool_response")
    return isinstance(response, dict) and bool(response.get("error"))


GEMINI_TOOLS: Final = ClientTools(
    client="gemini",
    names=table(
        """
        run_shell_command Bash, read_file Read, write_file Write, replace Edit, edit Edit,
        glob Glob, search_file_content Grep, grep_search Grep, list_directory LS,
        web_fetch WebFetch
        """
    ),
    paths=("absolute_path", "file_path", "dir_path", "path", "directory"),
    directories=("absolute_path", "file_path", "dir_path", "path", "directory"),
    texts={one: one for one in ("content", "old_string", "new_string", "pattern")},
    addresses=("url", "prompt"),
)

DIALECT: Final = HookDialect(
    client="gemini",
    programs=("gemini", "gemini.js"),
    events=event_kinds(
        """
        BeforeTool before, AfterTool after, BeforeAgent prompt, AfterAgent turn,
        SessionStart start, SessionEnd end
        """
    ),
    gate_seconds=60,
    own_tools=words(
        """
        activate_skill ask_user complete_task enter_plan_mode exit_plan_mode google_web_search
        invoke_agent list_background_processes read_background_output update_topic write_todos
        """
    ),
    our_tools=("mcp_ironcurtain_", "mcp__ironcurtain"),
    tools=GEMINI_TOOLS,
    paths=PathForm(
        decoded=ESCAPE,
        sought=lambda tool, path: path[:1] == "@" or (tool == "Edit" and path[:1] != "/"),
    ),
    reads=(".gemini/skills",),
    asks="at a terminal",
    before=AnswerForms(
        ask={"decision": "ask", "reason": WHY}, refuse={"decision": "deny", "reason": WHY}
    ),
    place=".gemini",
    file="settings.json",
    entry=_entry,
    # The client takes variables from the others.
    project_files=(".gemini/settings.json", ".gemini/.env", ".env"),
    server_files=((".gemini/settings.json", "mcpServers"),),
    is_off=_is_off,
    transcripts=".gemini/tmp/*/chats/*.json*",
    has_failed=_has_failed,
    is_last=lambda reason: reason != "clear",
)
