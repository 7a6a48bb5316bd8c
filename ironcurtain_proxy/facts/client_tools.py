"""The built-in tools of agents' clients, as calls of equivalent servers.

The one table for calls that arrive at a client's hook and for recorded calls. Names of tools are
those of Claude Code; the names of other clients are translated to them first.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.values import Arguments, Json

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
_WILD: Final = re.compile(r"[*?\[{]")
_PATCHED: Final = re.compile(
    r"^[ \t]*\*\*\* (Add File|Update File|Delete File|Move to): (.+)$", re.MULTILINE
)
"""The lines of a patch that name files. The client ignores blanks before them."""
_PATCH_TOOLS: Final = {
    "Add File": "Write",
    "Update File": "Edit",
    "Delete File": "Delete",
    "Move to": "Write",
}
_GEMINI: Final[Mapping[str, str]] = {
    "run_shell_command": "Bash",
    "read_file": "Read",
    "write_file": "Write",
    "replace": "Edit",
    "edit": "Edit",
    "glob": "Glob",
    "search_file_content": "Grep",
    "grep_search": "Grep",
    "list_directory": "LS",
    "web_fetch": "WebFetch",
}
"""The tools of Gemini CLI by their own names."""
_PATHS: Final = ("absolute_path", "file_path", "dir_path", "path", "directory")


class ServerCall(Struct, frozen=True):
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
            place = _searched(tool, given, _absolute(path or here, here))
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
    named = [given[key] for key in ("file_path", "notebook_path") if key in given]
    path = named[0] if named else None
    if not isinstance(path, str) or not path or named.count(path) != len(named):
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


def _searched(tool: str, given: Arguments, place: str) -> str:
    """Return the directory of a search: a pattern may lead out of the one that is named."""
    pattern = given.get("pattern")
    if tool != "Glob" or not isinstance(pattern, str):
        return place
    fixed = _WILD.split(pattern, maxsplit=1)[0]
    if not pattern.startswith(("/", "~")) and ".." not in pattern.split("/"):
        return place
    return posixpath.normpath(_absolute(posixpath.dirname(fixed) or "/", place))


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


ClientCalls: TypeAlias = tuple[tuple[str, Arguments], ...]
"""Calls by the names of the table, each with its arguments."""


def of_patch(text: Json) -> ClientCalls:
    """Return the calls of a patch of Codex, one for each file; none if it names no file."""
    found = _PATCHED.findall(text) if isinstance(text, str) else []
    return tuple([(_PATCH_TOOLS[what], {"file_path": path.strip()}) for what, path in found])


def of_gemini(name: str, given: Arguments) -> ClientCalls:
    """Return the calls of a tool of Gemini CLI: one, or one for each page that it fetches."""
    tool = _GEMINI.get(name, name)
    paths = [given[key] for key in _PATHS if given.get(key)]
    # Which of two the tool would take is not known.
    path = paths[0] if paths and paths.count(paths[0]) == len(paths) else None
    is_odd = bool(paths) and path is None
    match tool:
        case "Bash":
            command = None if is_odd else given.get("command")
            return (("Bash", {"command": command, **({"cwd": path} if path else {})}),)
        case "Read":
            return (("Read", {"file_path": path}),)
        case "Write" | "Edit":
            return ((tool, {**given, "file_path": path}),)
        case "Glob" | "Grep" | "LS":
            where: Json = 0 if is_odd else path
            return ((tool, {"path": where, "pattern": given.get("pattern")}),)
        case "WebFetch":
            text = f"{given.get('url', '')} {given.get('prompt', '')}"
            return tuple([("WebFetch", {"url": url}) for url in _URL.findall(text)])
        case _:
            return ((tool, given),)


_CURSOR: Final[Mapping[str, str]] = {
    "Shell": "Bash",
    "Read": "Read",
    "ReadFile": "Read",
    "Write": "Write",
    "TabWrite": "Write",
    "Edit": "Edit",
    "StrReplace": "Edit",
    "EditNotebook": "Edit",
    "Delete": "Delete",
    "Grep": "Grep",
    "Glob": "Glob",
    "LS": "LS",
    "ListDir": "LS",
    "WebFetch": "WebFetch",
}
"""The tools of Cursor by their own names."""
_CURSOR_PATHS: Final = (
    *("file_path", "path", "target_file", "target_notebook", "target_directory"),
    "working_directory",
)


def of_cursor(name: str, given: Arguments) -> ClientCalls:
    """Return the call of a tool of Cursor. What names two places is broken."""
    tool = _CURSOR.get(name)
    paths = [given[key] for key in _CURSOR_PATHS if given.get(key)]
    path = paths[0] if paths and paths.count(paths[0]) == len(paths) else None
    is_odd = bool(paths) and path is None
    match tool:
        case "Bash":
            command = None if is_odd else given.get("command")
            return (("Bash", {"command": command, **({"cwd": path} if path else {})}),)
        case "Read" | "Write" | "Edit" | "Delete":
            content = given.get("contents", given.get("content"))
            return ((tool, {**given, "content": content, "file_path": path}),)
        case "Glob" | "Grep" | "LS":
            pattern = given.get("glob_pattern", given.get("pattern"))
            return ((tool, {"path": 0 if is_odd else path, "pattern": pattern}),)
        case "WebFetch":
            return (("WebFetch", {"url": given.get("url")}),)
        case _:
            # A name of the common table that is no tool of Cursor is not known here.
            return ((f"cursor {name}", given),)


_COPILOT: Final[Mapping[str, str]] = {
    "bash": "Bash",
    "view": "Read",
    "create": "Write",
    "edit": "Edit",
    "glob": "Glob",
    "grep": "Grep",
    "web_fetch": "WebFetch",
}
"""The tools of Copilot CLI by their own names."""


def of_copilot(name: str, given: Arguments) -> ClientCalls:
    """Return the calls of a tool of Copilot CLI: one, or one for each directory of a search."""
    tool, path = _COPILOT.get(name), given.get("path")
    match tool:
        case "Bash":
            return (("Bash", {"command": given.get("command")}),)
        case "Read" | "Write" | "Edit":
            texts = {"old_string": given.get("old_str"), "new_string": given.get("new_str")}
            return ((tool, {"file_path": path, "content": given.get("file_text"), **texts}),)
        case "Glob" | "Grep":
            where = given.get("paths")
            places = where if isinstance(where, list) and where else [where]
            pattern = given.get("pattern")
            return tuple([(tool, {"path": one, "pattern": pattern}) for one in places])
        case "WebFetch":
            return (("WebFetch", {"url": given.get("url")}),)
        case _ if name == "apply_patch":
            return of_patch(given.get("input", given.get("patch"))) or (("Edit", {}),)
        case _:
            # A name of the common table that is no tool of this client is not known here.
            return ((f"copilot {name}", given),)


_OPENCODE: Final[Mapping[str, str]] = {
    "bash": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "glob": "Glob",
    "grep": "Grep",
    "list": "LS",
    "webfetch": "WebFetch",
}
"""The tools of opencode by their own names."""


def of_opencode(name: str, given: Arguments) -> ClientCalls:
    """Return the calls of a tool of opencode: one, or one for each file of a patch."""
    tool = _OPENCODE.get(name)
    match tool:
        case "Bash":
            place = given.get("workdir")
            where: dict[str, Json] = {"cwd": place} if isinstance(place, str) and place else {}
            return (("Bash", {"command": given.get("command"), **where}),)
        case "Read" | "Write" | "Edit":
            texts = {"old_string": given.get("oldString"), "new_string": given.get("newString")}
            path, content = given.get("filePath"), given.get("content")
            return ((tool, {"file_path": path, "content": content, **texts}),)
        case "Glob" | "Grep" | "LS":
            return ((tool, {"path": given.get("path"), "pattern": given.get("pattern")}),)
        case "WebFetch":
            return (("WebFetch", {"url": given.get("url")}),)
        case _ if name == "apply_patch":
            return of_patch(given.get("patchText")) or (("Edit", {}),)
        case _:
            return ((f"opencode {name}", given),)
