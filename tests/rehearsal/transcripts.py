"""Small transcripts of our own, one for each format."""

from collections.abc import Sequence
from pathlib import Path

import orjson

from ironcurtain_proxy.model.values import Json

HERE = "/home/ann/project"


def write(file: Path, rows: Sequence[object]) -> Path:
    lines = [row if isinstance(row, bytes) else orjson.dumps(row) for row in rows]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file


def recorded(tool: str, session: str = "s", *, refused: bool = False, **given: Json) -> Json:
    row: dict[str, Json] = {"session": session, "cwd": HERE, "branch": "feature", "tool": tool,
                            "input": given}  # fmt: skip
    return {**row, "refused": True} if refused else row


def claude(tool: str, given: Json, identifier: str = "t1", cwd: str = HERE) -> Json:
    block: Json = {"type": "tool_use", "id": identifier, "name": tool, "input": given}
    return {
        "type": "assistant",
        "sessionId": "c",
        "cwd": cwd,
        "gitBranch": "main",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "x"}, block]},
    }


def refusal(identifier: str) -> Json:
    said = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    block: Json = {"type": "tool_result", "tool_use_id": identifier, "is_error": True,
                   "content": said}  # fmt: skip
    return {"type": "user", "sessionId": "c", "message": {"role": "user", "content": [block]}}


def codex(payload: Json) -> Json:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload}


CODEX_START: Json = {
    "timestamp": "2026-01-01T00:00:00Z",
    "type": "session_meta",
    "payload": {"id": "x", "cwd": HERE, "git": {"branch": "main"}},
}


def function(name: str, arguments: Json) -> Json:
    text = orjson.dumps(arguments).decode()
    return codex({"type": "function_call", "name": name, "arguments": text, "call_id": "1"})


def gemini(*calls: tuple[str, Json]) -> Json:
    made: list[Json] = [{"id": "1", "name": name, "args": given} for name, given in calls]
    return {"sessionId": "g", "messages": [{"type": "user"}, {"type": "gemini", "toolCalls": made}]}
