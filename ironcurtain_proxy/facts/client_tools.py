"""The built-in tools of agents' clients, as calls of equivalent servers.

The one table for calls that arrive at a client's hook and for recorded calls. Names of tools are
those of Claude Code; the names of other clients are translated to them first.
"""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.model.json import Arguments, Json

FILES: Final = "filesystem"
FETCH: Final = "fetch"
SHELL: Final = "shell"
TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    FILES: (
        "read_text_file",
        "search_files",
        "list_directory",
        "write_file",
        "edit_file",
        "move_file",
    ),
    FETCH: ("fetch",),
    SHELL: ("run_command",),
}
"""The equivalent servers, each with its tools."""
SHELL_TOOL: Final[Mapping[str, Json]] = {
    "name": "run_command",
    "description": "Run a command in a shell and return its output.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command line to run."},
            "cwd": {"type": "string", "description": "Directory to run it in."},
        },
        "required": ["command"],
    },
}

_URL: Final = re.compile(r"https?://[^\s\"'<>)\]]+")


@dataclass(frozen=True, slots=True)
class ServerCall:
    """A call for a server."""

    server: str
    tool: str
    arguments: Arguments


EquivalentCall: TypeAlias = ServerCall | Literal["none", "broken"]
"""`none`: no server has such a tool. `broken`: the arguments are not those of the tool."""


def as_server_call(tool: str, given: Arguments, here: str) -> EquivalentCall:
    """Return the equivalent call of a server.

    Args:
        tool: the client's name of its tool.
        given: the arguments as the client has them.
        here: the directory of the call, absolute.
    """
    match tool:
        case "Bash":
            return _command(given, here)
        case "WebFetch":
            found = _URL.search(str(given.get("url", "")))
            return "broken" if found is None else ServerCall(FETCH, "fetch", {"url": found[0]})
        case "Grep" | "Glob" | "LS":
            path = given.get("path")
            if path is not None and not isinstance(path, str):
                return "broken"
            place = _absolute(path or here, here)
            name = "list_directory" if tool == "LS" else "search_files"
            pattern: dict[str, Json] = {} if tool == "LS" else {"pattern": "*"}
            return ServerCall(FILES, name, {"path": place, **pattern})
        case "Read" | "Write" | "Edit" | "MultiEdit" | "NotebookEdit" | "NotebookRead" | "Delete":
            return _file(tool, given, here)
        case _:
            return "none"


def _command(given: Arguments, here: str) -> EquivalentCall:
    command, where = given.get("command"), given.get("cwd")
    if not isinstance(command, str):
        return "broken"
    cwd = _absolute(where, here) if isinstance(where, str) else here
    return ServerCall(SHELL, "run_command", {"command": command, "cwd": cwd})


def _file(tool: str, given: Arguments, here: str) -> EquivalentCall:
    path = given.get("file_path", given.get("notebook_path"))
    if not isinstance(path, str) or not path:
        return "broken"
    place = _absolute(path, here)
    match tool:
        case "Read" | "NotebookRead":
            return ServerCall(FILES, "read_text_file", {"path": place})
        case "Write":
            content = _text(given.get("content"), "")
            return ServerCall(FILES, "write_file", {"path": place, "content": content})
        case "Delete":
            # No server of a preset deletes files: moving one away is the nearest.
            gone = {"source": place, "destination": f"{place}.deleted"}
            return ServerCall(FILES, "move_file", gone)
        case _:
            return ServerCall(FILES, "edit_file", {"path": place, "edits": _edits(given)})


def _edits(given: Arguments) -> list[Json]:
    """Return the edits of a call; transcripts of some clients hold the path alone."""
    several = given.get("edits")
    parts = several if isinstance(several, list) else [given]
    return [
        {
            "oldText": _text(one.get("old_string"), "a"),
            "newText": _text(one.get("new_string", one.get("new_source")), "b"),
        }
        for one in parts
        if isinstance(one, dict)
    ]


def _text(value: Json, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _absolute(path: str, here: str) -> str:
    return path if path.startswith(("/", "~")) else posixpath.join(here, path)
