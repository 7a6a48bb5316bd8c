"""Rollouts of Codex CLI: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`.

Newer lines are `{"type", "payload"}`, older ones the payload alone. `session_meta` and
`turn_context` give the session's directory.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.rehearsal.recorded import TranscriptCall

_CALLS: Final = frozenset({"function_call", "local_shell_call", "custom_tool_call"})
_MARKS: Final = frozenset({"session_meta", "turn_context", "response_item", "event_msg"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh"})
_SHELL_TOOLS: Final = frozenset({"shell", "shell_command", "exec_command", "container.exec"})
_FILE: Final = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$", re.MULTILINE)
_WITH_TEXT: Final = 3


def is_of_codex(row: Mapping[str, Json]) -> bool:
    """Whether a line is of this format."""
    kind = row.get("type")
    if kind in _MARKS:
        return isinstance(row.get("payload"), dict)
    return kind in _CALLS or ("instructions" in row and "id" in row)


@dataclass(slots=True)
class Rollout:
    """One file, read line by line."""

    session: str
    directory: str = ""
    branch: str = ""

    def calls_of(self, row: Mapping[str, Json]) -> Iterator[TranscriptCall | None]:
        """The calls of a line; None for one that is not of its shape."""
        payload = row.get("payload")
        inner = payload if isinstance(payload, dict) else row
        directory = inner.get("cwd")
        if isinstance(directory, str) and row.get("type") in {"session_meta", "turn_context"}:
            self.directory = directory
        git = inner.get("git")
        branch = git.get("branch") if isinstance(git, dict) else None
        if isinstance(branch, str):
            self.branch = branch
        match inner.get("type"):
            case "function_call":
                yield from self._function(inner)
            case "local_shell_call":
                action = inner.get("action")
                yield self._shell(action) if isinstance(action, dict) else None
            case "custom_tool_call" if inner.get("name") == "apply_patch":
                yield from self._patch(inner.get("input"))
            case "custom_tool_call":
                yield self._call(str(inner.get("name")), {})
            case _:
                return

    def _function(self, inner: Mapping[str, Json]) -> Iterator[TranscriptCall | None]:
        name, text = inner.get("name"), inner.get("arguments")
        try:
            given = orjson.loads(text) if isinstance(text, str) else text
        except ValueError:
            given = None
        if not isinstance(name, str) or not isinstance(given, dict):
            yield None
        elif name in _SHELL_TOOLS:
            yield self._shell(given)
        elif name == "apply_patch":
            yield from self._patch(given.get("input") or given.get("patch"))
        else:
            yield self._call(name, given)

    def _shell(self, given: Mapping[str, Json]) -> TranscriptCall | None:
        command = _text_of(given.get("command", given.get("cmd")))
        if command is None:
            return None
        where = given.get("workdir") or given.get("working_directory")
        arguments: dict[str, Json] = {"command": command}
        if isinstance(where, str):
            arguments["cwd"] = where
        return self._call("Bash", arguments)

    def _patch(self, text: Json) -> Iterator[TranscriptCall | None]:
        """The calls of a patch, one for each file."""
        found = _FILE.findall(text) if isinstance(text, str) else []
        if not found:
            yield None
        for what, path in found:
            tool = {"Add": "Write", "Update": "Edit", "Delete": "Delete"}[what]
            yield self._call(tool, {"file_path": path.strip()})

    def _call(self, tool: str, arguments: dict[str, Json]) -> TranscriptCall:
        return TranscriptCall(
            session=self.session,
            directory=self.directory,
            tool=tool,
            arguments=arguments,
            branch=self.branch,
        )


def _text_of(command: Json) -> str | None:
    """The command as a text: `["bash", "-lc", TEXT]` is TEXT, another list its words quoted."""
    if isinstance(command, str):
        return command
    if not isinstance(command, list) or not command:
        return None
    words = [str(word) for word in command]
    name = words[0].rpartition("/")[2]
    if name in _SHELLS and len(words) == _WITH_TEXT and words[1] in {"-c", "-lc", "-l -c"}:
        return words[2]
    return shlex.join(words)
