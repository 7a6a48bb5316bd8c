"""Chats of Gemini CLI: `~/.gemini/tmp/HASH/chats/session-*.json`, one object each.

Messages of type `gemini` hold `toolCalls`. The session's directory is recorded only as a hash
(`projectHash`, SHA-256 of the directory), so the user must give it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.rehearsal.recorded import TranscriptCall

_NAMES: Final[Mapping[str, str]] = {
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
_PATHS: Final = ("absolute_path", "file_path", "dir_path", "path")


def is_of_gemini(row: Mapping[str, Json]) -> bool:
    """Whether a document is of this format."""
    return "sessionId" in row and isinstance(row.get("messages"), list)


def calls_of(row: Mapping[str, Json]) -> Iterator[TranscriptCall | None]:
    """The calls of a chat; None for one that is not of its shape."""
    messages = row["messages"]
    for message in messages if isinstance(messages, list) else ():
        made = message.get("toolCalls") if isinstance(message, dict) else None
        for one in made if isinstance(made, list) else ():
            yield _call(str(row["sessionId"]), one)


def _call(session: str, one: Json) -> TranscriptCall | None:
    if not isinstance(one, dict):
        return None
    name, given = one.get("name"), one.get("args")
    if not isinstance(name, str) or not isinstance(given, dict):
        return None
    arguments = dict(given)
    tool = _NAMES.get(name, name)
    path = next((given[key] for key in _PATHS if key in given), None)
    if tool == "Bash":
        where = given.get("directory", path)
        arguments = {"command": given.get("command")}
        if where:
            arguments["cwd"] = where
    elif tool in {"Read", "Write", "Edit"}:
        arguments = {"file_path": path}
    elif tool in {"Glob", "Grep", "LS"}:
        arguments = {"path": path}
    elif tool == "WebFetch":
        arguments = {"url": given.get("url", given.get("prompt"))}
    return TranscriptCall(
        session=session,
        directory="",
        tool=tool,
        arguments=arguments,
        refused=one.get("status") == "cancelled",
    )
