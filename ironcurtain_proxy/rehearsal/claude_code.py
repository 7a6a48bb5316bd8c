"""Transcripts of Claude Code: `~/.claude/projects/*/*.jsonl`.

A line of type `assistant` holds a message with blocks; those of type `tool_use` are calls. A later
line of type `user` holds the `tool_result` of each. A session that is taken up again repeats the
lines of the earlier one, so each call counts once by its id.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.rehearsal.recorded import TranscriptCall

_SAID_NO: Final = (
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
    "[Request interrupted by user for tool use]",
)


def is_of_claude_code(row: Mapping[str, Json]) -> bool:
    """Whether a line is of this format."""
    return "sessionId" in row and ("type" in row or "message" in row) and "messages" not in row


def calls_of(row: Mapping[str, Json]) -> Iterator[tuple[str, TranscriptCall] | None]:
    """The calls of a line, each with its id; None for one that is not of its shape."""
    if row.get("type") != "assistant":
        return
    for block in _blocks(row):
        if block.get("type") != "tool_use":
            continue
        tool, given = block.get("name"), block.get("input")
        directory, branch = row.get("cwd"), row.get("gitBranch")
        if not isinstance(tool, str) or not isinstance(given, dict):
            yield None
            continue
        call = TranscriptCall(
            session=str(row["sessionId"]),
            directory=directory if isinstance(directory, str) else "",
            tool=tool,
            arguments=given,
            branch=branch if isinstance(branch, str) else "",
        )
        yield str(block.get("id", "")), call


def refusals_of(row: Mapping[str, Json]) -> Iterator[str]:
    """The ids of calls that the user refused."""
    if row.get("type") != "user":
        return
    for block in _blocks(row):
        if block.get("type") == "tool_result" and block.get("is_error") is True:
            text = str(block.get("content"))
            if any(said in text for said in _SAID_NO):
                yield str(block.get("tool_use_id", ""))


def _blocks(row: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
