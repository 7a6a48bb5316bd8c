"""The hooks of Gemini CLI: its events, and exactly the answers that it documents.

Tried with 0.61.0 and 0.51.0. It gives calls no id, so the end of one is known by its tool and
arguments. `ask` opens its dialog; without a terminal the program would hang, so `ask` is answered
only where it has one.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.config.reading.reading import read_text
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.client_tools import ClientTools
from ironcurtain_proxy.hooks.events import (
    WHY,
    AnswerForms,
    HookDialect,
    table,
)
from ironcurtain_proxy.hooks.paths import ESCAPE, PathForm
from ironcurtain_proxy.model.values import Arguments, object_of

_PATHS: Final = ("absolute_path", "file_path", "dir_path", "path", "directory")
_EXIT: Final = re.compile(r"\nExit Code: [1-9]\d*\n(?:.*\n){0,4}</untrusted_context>\Z")
"""How the text of a command that failed ends."""
_NAME: Final = re.compile(r"[\w-]+", re.ASCII)


def _is_off(document: Mapping[str, object]) -> bool:
    # It takes `"false"` for false, and a variable's value for `"$NAME"`.
    chosen = object_of(document.get("hooksConfig", {}))
    return chosen.get("enabled", True) is not True or bool(chosen.get("disabled"))


def _sets(document: Mapping[str, object]) -> dict[str, str]:
    tools = object_of(document.get("tools"))
    pager = object_of(tools.get("shell")).get("pager")
    return {} if pager is None else {"GIT_PAGER": str(pager)}


def _has_failed(payload: Arguments) -> bool:
    response = object_of(payload.get("tool_response"))
    return bool(response.get("error") or _EXIT.search(str(response.get("llmContent"))))


def _project(directory: Path, project: str) -> str:
    with suppress(ConfigurationError, ValueError):
        known = object_of(orjson.loads(read_text(directory / "projects.json")))
        name = str(object_of(known.get("projects")).get(project, ""))
        return name if _NAME.fullmatch(name) else ""
    return ""


GEMINI_TOOLS: Final = ClientTools(
    client="gemini",
    names=table(
        """
        run_shell_command Bash, read_file Read, write_file Write, replace Edit, edit Edit,
        glob Glob, search_file_content Grep, grep_search Grep, list_directory LS,
        web_fetch WebFetch
        """
    ),
    paths=_PATHS,
    directories=_PATHS,
    texts={one: one for one in ("content", "old_string", "new_string", "pattern")},
    addresses=("prompt",),
)

DIALECT: Final = HookDialect(
    client="gemini",
    gate_seconds=60,
    our_tools=("mcp_ironcurtain_", "mcp__ironcurtain"),
    tools=GEMINI_TOOLS,
    paths=PathForm(
        decoded=ESCAPE,
        sought=lambda tool, path: path[:1] == "@" or (tool == "Edit" and path[:1] != "/"),
    ),
    project=_project,
    asks="at a terminal",
    before=AnswerForms(
        ask={"decision": "ask", "reason": WHY}, refuse={"decision": "deny", "reason": WHY}
    ),
    entry=lambda line: line.hook(name="ironcurtain", timeout=1000 * line.seconds),
    has_comments=True,
    # The client takes variables from the others.
    project_files=(".gemini/settings.json", ".gemini/.env", ".env"),
    server_files=((".gemini/settings.json", "mcpServers"),),
    is_off=_is_off,
    sets_in=_sets,
    has_failed=_has_failed,
    is_last=lambda reason: reason != "clear",
)
