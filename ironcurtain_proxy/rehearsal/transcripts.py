"""Transcripts of clients on the disk: their files, and the calls that their lines record.

Lines that are too long, broken or of another form are counted and skipped, and so are unreadable
files.
"""

import gzip
import os
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.client_tools import (
    ServerCall,
    of_patch,
)
from ironcurtain_proxy.hooks.copilot import COPILOT_TOOLS
from ironcurtain_proxy.hooks.gemini import GEMINI_TOOLS
from ironcurtain_proxy.hooks.opencode import OPENCODE_TOOLS
from ironcurtain_proxy.model.operation import Operation, RequestId
from ironcurtain_proxy.model.values import Arguments, Json, list_of, object_of, text_of
from ironcurtain_proxy.private_files import opened

# --- recorded


class TranscriptCall(Struct, frozen=True, kw_only=True):
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


class Recording(Struct):
    """All calls of some transcripts in order, and the unreadable parts."""

    calls: list[TranscriptCall] = msgspec.field(default_factory=list)
    files: int = 0
    broken_lines: int = 0
    """Lines that are no JSON object, or whose call does not have the form of its format."""
    unreadable: list[str] = msgspec.field(default_factory=list)
    """Files, each with the reason."""
    other_files: int = 0
    """Files in which no line was of a known format."""


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


# --- transcripts


def _objects(row: Mapping[str, Json], name: str) -> list[Mapping[str, Json]]:
    return [one for one in list_of(row.get(name)) if isinstance(one, dict)]


# --- one call a line ------------------------------------------------------------------------------
# Lines `{"session", "cwd", "branch", "tool", "input", "refused"?}`: one call each.


def is_of_corpus(row: Mapping[str, Json]) -> bool:
    """Return whether a line is of this format."""
    return "session" in row and "tool" in row and "input" in row


def call_of(row: Mapping[str, Json]) -> TranscriptCall | None:
    """Return the call of a line, or None if it is not of its shape."""
    tool, given = row["tool"], row["input"]
    if not isinstance(tool, str) or not isinstance(given, dict):
        return None
    return TranscriptCall(
        session=str(row["session"]),
        directory=text_of(row.get("cwd")),
        tool=tool,
        arguments=given,
        branch=text_of(row.get("branch")),
        refused=row.get("refused") is True,
    )


# --- Claude Code ----------------------------------------------------------------------------------
# Transcripts of Claude Code: `~/.claude/projects/*/*.jsonl`.
#
# A line of type `assistant` holds a message with blocks; those of type `tool_use` are calls. A
# later line of type `user` holds the `tool_result` of each. A session that is taken up again
# repeats the lines of the earlier one, so each call counts once by its id.


_SAID_NO: Final = (
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
    "[Request interrupted by user for tool use]",
)


def is_of_claude_code(row: Mapping[str, Json]) -> bool:
    """Return whether a line is of this format."""
    return "sessionId" in row and ("type" in row or "message" in row) and "messages" not in row


def claude_code_calls(row: Mapping[str, Json]) -> Iterator[tuple[str, TranscriptCall] | None]:
    """Yield the calls of a line, each with its id, or None for one that is not of its shape."""
    if row.get("type") != "assistant":
        return
    for block in _blocks(row):
        if block.get("type") != "tool_use":
            continue
        tool, given = block.get("name"), block.get("input")
        if not isinstance(tool, str) or not isinstance(given, dict):
            yield None
            continue
        call = TranscriptCall(
            session=str(row["sessionId"]),
            directory=text_of(row.get("cwd")),
            tool=tool,
            arguments=given,
            branch=text_of(row.get("gitBranch")),
        )
        yield str(block.get("id", "")), call


def refusals_of(row: Mapping[str, Json]) -> Iterator[str]:
    """Yield the ids of calls that the user refused."""
    if row.get("type") != "user":
        return
    for block in _blocks(row):
        if block.get("type") == "tool_result" and block.get("is_error") is True:
            text = str(block.get("content"))
            if any(said in text for said in _SAID_NO):
                yield str(block.get("tool_use_id", ""))


def _blocks(row: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    return _objects(object_of(row.get("message")), "content")


# --- Codex CLI ------------------------------------------------------------------------------------
# Rollouts of Codex CLI: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`.
#
# Newer lines are `{"type", "payload"}`, older ones only the payload. `session_meta` and
# `turn_context` give the session's directory.


_CALLS: Final = frozenset({"function_call", "local_shell_call", "custom_tool_call"})
_MARKS: Final = frozenset({"session_meta", "turn_context", "response_item", "event_msg"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh"})
_SHELL_TOOLS: Final = frozenset({"shell", "shell_command", "exec_command", "container.exec"})
_WITH_TEXT: Final = 3


def is_of_codex(row: Mapping[str, Json]) -> bool:
    """Return whether a line is of this format."""
    kind = row.get("type")
    if kind in _MARKS:
        return isinstance(row.get("payload"), dict)
    return kind in _CALLS or ("instructions" in row and "id" in row)


class Rollout(Struct):
    """One file, read line by line."""

    session: str
    directory: str = ""
    branch: str = ""

    def calls_of(self, row: Mapping[str, Json]) -> Iterator[TranscriptCall | None]:
        """Yield the calls of a line, or None for one that is not of its shape."""
        inner = object_of(row.get("payload")) or row
        if row.get("type") in {"session_meta", "turn_context"}:
            self.directory = text_of(inner.get("cwd")) or self.directory
        self.branch = text_of(object_of(inner.get("git")).get("branch")) or self.branch
        match inner.get("type"):
            case "function_call":
                yield from self._function(inner)
            case "local_shell_call":
                action = inner.get("action")
                yield self._shell(action) if isinstance(action, dict) else None
            case "custom_tool_call" if inner.get("name") == "apply_patch":
                yield from self._patch(inner.get("input"))
            case "custom_tool_call":
                yield self.call(str(inner.get("name")), {})
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
            yield self.call(name, given)

    def _shell(self, given: Mapping[str, Json]) -> TranscriptCall | None:
        command = _text_of(given.get("command", given.get("cmd")))
        if command is None:
            return None
        where = given.get("workdir") or given.get("working_directory")
        arguments: dict[str, Json] = {"command": command}
        if isinstance(where, str):
            arguments["cwd"] = where
        return self.call("Bash", arguments)

    def _patch(self, text: Json) -> Iterator[TranscriptCall | None]:
        """Yield the calls of a patch, one for each file."""
        found = of_patch(text)
        if not found:
            yield None
        for tool, arguments in found:
            yield self.call(tool, {**arguments})

    def call(self, tool: str, arguments: dict[str, Json]) -> TranscriptCall:
        """Return a call of the session where it is now."""
        return TranscriptCall(
            session=self.session,
            directory=self.directory,
            tool=tool,
            arguments=arguments,
            branch=self.branch,
        )


def _text_of(command: Json) -> str | None:
    """Return the command as text: TEXT of `["bash", "-lc", TEXT]`, or a list's words quoted."""
    if isinstance(command, str):
        return command
    if not isinstance(command, list) or not command:
        return None
    words = [str(word) for word in command]
    name = words[0].rpartition("/")[2]
    if name in _SHELLS and len(words) == _WITH_TEXT and words[1] in {"-c", "-lc", "-l -c"}:
        return words[2]
    return shlex.join(words)


# --- Gemini CLI -----------------------------------------------------------------------------------
# Chats of Gemini CLI: `~/.gemini/tmp/HASH/chats/session-*.json`, one object each.
#
# Messages of type `gemini` hold `toolCalls`. The session's directory is recorded only as a hash
# (`projectHash`, SHA-256 of the directory), so the user must give it.


def is_of_gemini(row: Mapping[str, Json]) -> bool:
    """Return whether a document is of this format."""
    return "sessionId" in row and isinstance(row.get("messages"), list)


def gemini_calls(row: Mapping[str, Json]) -> Iterator[TranscriptCall | None]:
    """Yield the calls of a chat, or None for one that is not of its shape."""
    for message in _objects(row, "messages"):
        for one in list_of(message.get("toolCalls")):
            yield from _calls(str(row["sessionId"]), one)


def _calls(session: str, one: Json) -> Iterator[TranscriptCall | None]:
    name, given = (one.get("name"), one.get("args")) if isinstance(one, dict) else (None, None)
    if not isinstance(one, dict) or not isinstance(name, str) or not isinstance(given, dict):
        yield None
        return
    for tool, arguments in GEMINI_TOOLS.calls(name, given):
        yield TranscriptCall(
            session=session,
            directory="",
            tool=tool,
            arguments=arguments,
            refused=one.get("status") == "cancelled",
        )


# --- Copilot CLI ----------------------------------------------------------------------------------
# Sessions of Copilot CLI: `~/.copilot/session-state/ID/events.jsonl`.
#
# Lines `{"type", "data", "id"}`. `session.start` and its like name the directory and the branch;
# `tool.execution_start` is a call, and `tool.execution_complete` says if the user refused it.


_TRUSTED: Final = re.compile(r"Folder (/.+) has been added to trusted folders")
"""What older versions say of the directory."""


def is_of_copilot(row: Mapping[str, Json]) -> bool:
    """Return whether a line is of this format."""
    kind = row.get("type")
    return isinstance(kind, str) and "." in kind and isinstance(row.get("data"), dict)


def copilot_calls(
    row: Mapping[str, Json], rollout: Rollout
) -> Iterator[tuple[str, TranscriptCall] | None]:
    """Yield the calls of a line, each with its id, or None for one that is not of its shape."""
    data = object_of(row.get("data"))
    if str(row["type"]).startswith("session."):
        _copilot_place(data, rollout)
    if row["type"] != "tool.execution_start":
        return
    name, given = data.get("toolName"), data.get("arguments")
    if not isinstance(name, str) or not isinstance(given, dict):
        yield None
        return
    for number, (tool, arguments) in enumerate(COPILOT_TOOLS.calls(name, given)):
        call = rollout.call(tool, {**arguments})
        yield _numbered(f"{rollout.session} {data.get('toolCallId')}", number), call


def _numbered(identifier: str, number: int) -> str:
    """Return the id of one of several calls that a tool made; the first has the tool's own."""
    return f"{identifier} {number}" if number else identifier


def _copilot_place(data: Mapping[str, Json], rollout: Rollout) -> None:
    place = object_of(data.get("context")) or data
    trusted = _TRUSTED.search(str(data.get("message", "")))
    rollout.session = str(data.get("sessionId", rollout.session))
    rollout.directory = (
        text_of(place.get("cwd")) or rollout.directory or (trusted[1] if trusted else "")
    )
    rollout.branch = text_of(place.get("branch")) or rollout.branch


def copilot_refusals(row: Mapping[str, Json], rollout: Rollout) -> Iterator[str]:
    """Yield the id of a call that the user refused."""
    data = object_of(row.get("data"))
    if object_of(data.get("error")).get("code") == "rejected":
        yield f"{rollout.session} {data.get('toolCallId')}"


# --- opencode -------------------------------------------------------------------------------------
# Sessions of opencode: `~/.local/share/opencode/storage`, and what `opencode export` writes.
#
#     session/PROJECT/SESSION.json     its directory
#     message/SESSION/MESSAGE.json     the directory of one answer
#     part/MESSAGE/PART.json           of type `tool`: one call
#
# An export is one document of all three. The files come in any order, so that directories are
# known at the end.


_REJECTED: Final = "user rejected permission"


def is_of_opencode(row: Mapping[str, Json]) -> bool:
    """Return whether a document is of this format."""
    is_export = isinstance(row.get("info"), dict) and isinstance(row.get("messages"), list)
    return is_export or "sessionID" in row or ("projectID" in row and "directory" in row)


def opencode_documents(row: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """Yield the session, the messages and the parts of a document."""
    if "messages" not in row:
        yield row
        return
    for one in (row, *_objects(row, "messages")):
        yield object_of(one.get("info"))
        yield from _objects(one, "parts")


def opencode_place(row: Mapping[str, Json]) -> tuple[str, str] | None:
    """Return the session and the directory that a session or a message names."""
    place = object_of(row.get("path")) or {"cwd": row.get("directory")}
    found = text_of(place.get("cwd"))
    return (str(row.get("sessionID", row.get("id"))), found) if found else None


def opencode_calls(row: Mapping[str, Json]) -> Iterator[tuple[str, TranscriptCall] | None]:
    """Yield the calls of a part, each with its id, or None for one that is not of its shape."""
    state, name = object_of(row.get("state")), row.get("tool")
    if row.get("type") != "tool" or state.get("status") == "pending":
        return
    given = state.get("input")
    if not isinstance(name, str) or not isinstance(given, dict):
        yield None
        return
    for number, (tool, arguments) in enumerate(OPENCODE_TOOLS.calls(name, given)):
        call = TranscriptCall(
            session=str(row.get("sessionID")),
            directory="",
            tool=tool,
            arguments=arguments,
            refused=_REJECTED in str(state.get("error", "")),
        )
        yield _numbered(str(row.get("id", "")), number), call


_MAX_LINE: Final = 64 << 20
"""The most bytes of one line, and of a chat that is one document."""
_ENDINGS: Final = (".jsonl", ".jsonl.gz", ".json")


def read_transcripts(paths: Iterable[Path]) -> Recording:
    """Return all calls of these files, and of those in these directories.

    Raises:
        ConfigurationError: one of the paths is not there.
    """
    reader = _TranscriptReader()
    for path in paths:
        if not path.exists():
            raise ConfigurationError(f"{path}: no such file or directory")
        for file in _files(path):
            reader.read(file)
    return reader.finished()


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for directory, inner, names in os.walk(path):
        inner.sort()
        for name in sorted(names):
            if name.endswith(_ENDINGS):
                yield Path(directory, name)


class _TranscriptReader:
    def __init__(self) -> None:
        self._recording = Recording()
        self._by_id: dict[str, int] = {}
        """The position of each call with an id."""
        self._refused: set[str] = set()
        self._places: dict[str, str] = {}
        """The directories of opencode's sessions."""

    def finished(self) -> Recording:
        calls = self._recording.calls
        for at, call in enumerate(calls):
            if not call.directory and call.session in self._places:
                calls[at] = replace(call, directory=self._places[call.session])
        for identifier in self._refused & self._by_id.keys():
            at = self._by_id[identifier]
            calls[at] = replace(calls[at], refused=True)
        return self._recording

    def read(self, file: Path) -> None:
        before = len(self._recording.calls), self._recording.broken_lines
        known = readable = False
        rollout = Rollout(session=file.stem)
        try:
            for line in _lines(file):
                known |= self._line(line, rollout)
            readable = True
        except (OSError, EOFError, zlib.error) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._recording.unreadable.append(f"{file}: {why}")
        self._recording.files += 1
        now = (len(self._recording.calls), self._recording.broken_lines)
        if readable and not known and before == now:
            self._recording.other_files += 1

    def _line(self, line: bytes | None, rollout: Rollout) -> bool:
        """Read one line. Return whether it is of a known format."""
        if line is not None and line.isspace():
            return False
        try:
            row = None if line is None else orjson.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            self._recording.broken_lines += 1
            return False
        return self._row(row, rollout)

    def _row(self, row: Mapping[str, Json], rollout: Rollout) -> bool:
        if is_of_corpus(row):
            self._add([call_of(row)])
        elif is_of_claude_code(row):
            self._refused.update(refusals_of(row))
            for found in claude_code_calls(row):
                self._once(found)
        elif is_of_gemini(row):
            self._add(gemini_calls(row))
        elif is_of_codex(row):
            self._add(rollout.calls_of(row))
        elif is_of_copilot(row):
            for found in copilot_calls(row, rollout):
                self._once(found)
            self._refused.update(copilot_refusals(row, rollout))
        else:
            return self._opencode(row)
        return True

    def _opencode(self, row: Mapping[str, Json]) -> bool:
        if not is_of_opencode(row):
            return False
        for one in opencode_documents(row):
            if place := opencode_place(one):
                self._places.setdefault(*place)
            for found in opencode_calls(one):
                self._once(found)
        return True

    def _once(self, found: tuple[str, TranscriptCall] | None) -> None:
        if found is None:
            self._recording.broken_lines += 1
            return
        identifier, call = found
        at = len(self._recording.calls)
        if not identifier or self._by_id.setdefault(identifier, at) == at:
            self._recording.calls.append(call)

    def _add(self, calls: Iterable[TranscriptCall | None]) -> None:
        for call in calls:
            if call is None:
                self._recording.broken_lines += 1
            else:
                self._recording.calls.append(call)


def _lines(file: Path) -> Iterator[bytes | None]:
    """Yield the lines of a file, or None for one that is too long. A `.json` is one line."""
    with ExitStack() as stack:
        source: IO[bytes] | gzip.GzipFile = stack.enter_context(opened(file))
        if file.name.endswith(".gz"):
            source = stack.enter_context(gzip.GzipFile(fileobj=source))
        if file.name.endswith(".json"):
            whole = source.read(_MAX_LINE + 1)
            yield whole if len(whole) <= _MAX_LINE else None
            return
        while line := source.readline(_MAX_LINE):
            rest = line
            while len(rest) == _MAX_LINE and not rest.endswith(b"\n"):
                rest = source.readline(_MAX_LINE)
            yield line if rest is line else None
