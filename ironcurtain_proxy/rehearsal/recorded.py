"""A recorded call, and the result of reading transcripts."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.operation import Operation, RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptCall:
    """One tool call of a recorded session."""

    session: str
    directory: str
    """Absolute: the session's directory at that moment. Empty means unknown."""
    tool: str
    """The client's name of the tool."""
    arguments: Arguments
    branch: str = ""
    """The current branch, or empty if the transcript names none."""
    refused: bool = False
    """Whether the user refused it."""


@dataclass(slots=True)
class Recording:
    """All calls of some transcripts in order, and the unreadable parts."""

    calls: list[TranscriptCall] = field(default_factory=list)
    files: int = 0
    broken_lines: int = 0
    """Lines that are no JSON object, or whose call does not have the form of its format."""
    unreadable: list[str] = field(default_factory=list)
    """Files, each with the reason."""
    other_files: int = 0
    """Files in which no line was of a known format."""


# --- a client's own tools, as calls of servers ----------------------------------------------------
# The built-in tools of clients, as calls of equivalent servers.


FILES: Final = "filesystem"
FETCH: Final = "fetch"
SHELL: Final = "shell"
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


def as_tool_call(call: ServerCall) -> Operation:
    """Return the call in the form of the proxy."""
    return Operation(
        request_id=RequestId("rehearsed"),
        exposed_name=f"{call.server}__{call.tool}",
        server=call.server,
        tool=call.tool,
        arguments=call.arguments,
        params={},
    )


def as_server_call(call: TranscriptCall, workspace: str) -> ServerCall | Literal["none", "broken"]:
    """Return the equivalent call of a server; `none`: no server of a preset has such a tool.

    Args:
        call: of a transcript.
        workspace: the session's, for calls without a directory.
    """
    here = call.directory or workspace
    given = call.arguments
    match call.tool:
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
            tool = "list_directory" if call.tool == "LS" else "search_files"
            pattern: dict[str, Json] = {} if call.tool == "LS" else {"pattern": "*"}
            return ServerCall(FILES, tool, {"path": place, **pattern})
        case "Read" | "Write" | "Edit" | "MultiEdit" | "NotebookEdit" | "NotebookRead" | "Delete":
            return _file(call, given, here)
        case _:
            return "none"


def _command(given: Arguments, here: str) -> ServerCall | Literal["broken"]:
    command, where = given.get("command"), given.get("cwd")
    if not isinstance(command, str):
        return "broken"
    cwd = _absolute(where, here) if isinstance(where, str) else here
    return ServerCall(SHELL, "run_command", {"command": command, "cwd": cwd})


def _file(call: TranscriptCall, given: Arguments, here: str) -> ServerCall | Literal["broken"]:
    path = given.get("file_path", given.get("notebook_path"))
    if not isinstance(path, str) or not path:
        return "broken"
    place = _absolute(path, here)
    match call.tool:
        case "Read" | "NotebookRead":
            return ServerCall(FILES, "read_text_file", {"path": place})
        case "Write":
            return ServerCall(FILES, "write_file", {"path": place, "content": ""})
        case "Delete":
            # No server of a preset deletes files: moving one away is the nearest.
            gone = {"source": place, "destination": f"{place}.deleted"}
            return ServerCall(FILES, "move_file", gone)
        case _:
            edits: list[Json] = [{"oldText": "a", "newText": "b"}]
            return ServerCall(FILES, "edit_file", {"path": place, "edits": edits})


def _absolute(path: str, here: str) -> str:
    return path if path.startswith(("/", "~")) else posixpath.join(here, path)
