"""Transcripts are read in every format, and whatever is wrong with them is counted."""

import gzip
import os
from pathlib import Path

import pytest

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.client_tools import ServerCall, as_server_call
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.rehearsal.transcripts import TranscriptCall, read_transcripts
from tests.rehearsal.transcripts import (
    CODEX_START,
    HERE,
    claude,
    codex,
    function,
    gemini,
    recorded,
    refusal,
    write,
)


def served(call: TranscriptCall) -> tuple[str, Json]:
    found = as_server_call(call.tool, call.arguments, call.directory or HERE)
    assert isinstance(found, ServerCall)
    first = next(iter(found.arguments.values()))
    return found.tool, first


def test_claude_code_s_calls_are_read_once_and_its_refusals_with_them(tmp_path: Path) -> None:
    rows = [
        {"type": "summary", "summary": "x"},
        claude("Bash", {"command": "make"}, "a"),
        claude("Edit", {"file_path": "src/x.py"}, "b"),
        refusal("b"),
        claude("TodoWrite", {"todos": []}, "c"),
    ]
    write(tmp_path / "p" / "one.jsonl", rows)
    # A session that is taken up again repeats what was there.
    write(tmp_path / "p" / "two.jsonl", rows[:3])
    calls = read_transcripts([tmp_path]).calls
    assert [(call.tool, call.refused, call.branch) for call in calls] == [
        ("Bash", False, "main"),
        ("Edit", True, "main"),
        ("TodoWrite", False, "main"),
    ]
    assert served(calls[1]) == ("edit_file", f"{HERE}/src/x.py")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (function("shell", {"command": ["bash", "-lc", "make | tail"]}), "make | tail"),
        (function("shell", {"command": ["git", "commit", "-m", "a b"]}), "git commit -m 'a b'"),
        (function("exec_command", {"cmd": "ls", "workdir": "/x"}), "ls"),
        (codex({"type": "local_shell_call", "action": {"command": ["sh", "-c", "ls"]}}), "ls"),
        ({"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}'}, "ls"),
    ],
)
def test_codex_s_commands_are_texts_again(tmp_path: Path, row: Json, expected: str) -> None:
    found = read_transcripts([write(tmp_path / "rollout-x.jsonl", [CODEX_START, row])])
    (call,) = found.calls
    assert served(call) == ("run_command", expected)
    assert call.directory == HERE


def test_a_patch_of_codex_is_a_call_for_each_file(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: a\n+x\n*** Update File: b\n*** Delete File: c\n"
    row = codex({"type": "custom_tool_call", "name": "apply_patch", "input": patch})
    found = read_transcripts([write(tmp_path / "rollout-x.jsonl", [CODEX_START, row])])
    assert [served(call) for call in found.calls] == [
        ("write_file", f"{HERE}/a"),
        ("edit_file", f"{HERE}/b"),
        ("move_file", f"{HERE}/c"),
    ]


def test_gemini_s_chats_are_read(tmp_path: Path) -> None:
    chat = gemini(
        ("run_shell_command", {"command": "make", "directory": "sub"}),
        ("read_file", {"absolute_path": "/x/y"}),
        ("web_fetch", {"prompt": "summarise https://example.com/a please"}),
        ("save_memory", {"fact": "x"}),
    )
    found = read_transcripts([write(tmp_path / "session-1.json", [chat])])
    assert [
        as_server_call(call.tool, call.arguments, call.directory or HERE) for call in found.calls
    ] == [
        ServerCall("shell", "run_command", {"command": "make", "cwd": f"{HERE}/sub"}),
        ServerCall("filesystem", "read_text_file", {"path": "/x/y"}),
        ServerCall("fetch", "fetch", {"url": "https://example.com/a"}),
        "none",
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[1]",
        b"\xff\xfe",
        b"null",
        b'{"session": "s", "tool": 3, "input": {}}',
        b'{"session": "s", "tool": "Bash", "input": []}',
        b'{"sessionId": "s", "type": "assistant", "message": {"content": [{"type": "tool_use"}]}}',
        b'{"type": "response_item", "payload": {"type": "function_call", "name": "shell"}}',
        b'{"type": "function_call", "name": "shell", "arguments": "{"}',
        b'{"type": "response_item", "payload": {"type": "local_shell_call"}}',
        b'{"sessionId": "g", "messages": [{"toolCalls": [3]}]}',
        b"[" * 5000,
    ],
)
def test_a_broken_line_is_counted_and_those_after_it_are_read(tmp_path: Path, line: bytes) -> None:
    found = read_transcripts([write(tmp_path / "x.jsonl", [line, recorded("Bash", command="ls")])])
    assert found.broken_lines == 1
    assert len(found.calls) == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"sessionId": "s", "type": "assistant", "message": {"content": "text"}}',
        b'{"sessionId": 3, "type": "assistant", "message": null}',
        b'{"type": "event_msg", "payload": {"type": "token_count"}}',
        b'{"some": "thing else"}',
        b"",
        b"   ",
    ],
)
def test_a_line_without_a_call_is_passed_over(tmp_path: Path, line: bytes) -> None:
    found = read_transcripts([write(tmp_path / "x.jsonl", [line, recorded("Bash", command="ls")])])
    assert (found.broken_lines, len(found.calls)) == (0, 1)


def test_compressed_and_torn_files_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain", [recorded("Bash", command="ls")] * 2000).read_bytes()
    whole = gzip.compress(plain)
    (tmp_path / "a.jsonl.gz").write_bytes(whole)
    (tmp_path / "b.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c.jsonl.gz").write_bytes(b"no gzip")
    found = read_transcripts([tmp_path])
    assert len(found.calls) >= 2000
    assert [line.partition(":")[0][-10:] for line in found.unreadable] == [
        "b.jsonl.gz",
        "c.jsonl.gz",
    ]


def test_a_pipe_and_other_files_do_not_stop_the_reading(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b.json").write_bytes(b'{"mcpServers": {}}')
    (tmp_path / "notes.txt").write_bytes(b"x")
    write(tmp_path / "c.jsonl", [recorded("Bash", command="ls")])
    found = read_transcripts([tmp_path])
    assert (len(found.calls), found.other_files, len(found.unreadable)) == (1, 1, 1)


def test_a_path_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        read_transcripts([tmp_path / "nothing"])


def event(kind: str, **data: Json) -> Json:
    return {"type": kind, "data": data, "id": "e", "timestamp": "2026-01-01T00:00:00Z"}


def test_copilot_s_calls_are_read_with_their_place_and_refusals(tmp_path: Path) -> None:
    context: Json = {"cwd": HERE, "branch": "main"}
    rows = [
        event("session.start", sessionId="x", context=context),
        event("user.message", content="x"),
        event("tool.execution_start", toolCallId="a", toolName="bash", arguments={"command": "ls"}),
        event("tool.execution_start", toolCallId="b", toolName="view", arguments={"path": "y"}),
        event("tool.execution_complete", toolCallId="b", success=False, error={"code": "rejected"}),
        event("tool.execution_start", toolCallId="c", toolName="bash", arguments="broken"),
        event("tool.execution_start", toolCallId="d", toolName="report_intent", arguments={}),
    ]
    recording = read_transcripts([write(tmp_path / "x" / "events.jsonl", rows)])
    assert recording.broken_lines == 1
    assert [(one.session, one.branch, one.refused) for one in recording.calls] == [
        ("x", "main", False),
        ("x", "main", True),
        ("x", "main", False),
    ]
    assert [served(one) for one in recording.calls[:2]] == [
        ("run_command", "ls"),
        ("read_text_file", f"{HERE}/y"),
    ]
    older = [event("session.info", message=f"Folder {HERE} has been added to trusted folders.")]
    (call,) = read_transcripts([write(tmp_path / "o.jsonl", [*older, rows[2]])]).calls
    assert call.directory == HERE


def test_opencode_s_calls_are_read_from_its_storage_and_from_an_export(tmp_path: Path) -> None:
    def part(number: int, tool: str, given: Json, **state: Json) -> dict[str, Json]:
        return {
            "id": f"prt_{number}",
            "sessionID": "ses_1",
            "messageID": "msg_1",
            "type": "tool",
            "callID": str(number),
            "tool": tool,
            "state": {"status": "completed", "input": given, **state},
        }

    session: Json = {"id": "ses_1", "projectID": "p", "directory": HERE, "title": "x"}
    parts = [
        part(1, "bash", {"command": "make"}),
        part(2, "edit", {"filePath": "a", "oldString": "x", "newString": "y"}),
        part(3, "bash", {"command": "rm x"}, status="error", error="The user rejected permission"),
        part(4, "bash", {}, status="pending"),
        {**part(5, "bash", {}), "state": 7},
    ]
    storage = tmp_path / "storage"
    write(storage / "session/p/ses_1.json", [session])
    write(storage / "message/ses_1/msg_1.json", [{"id": "msg_1", "sessionID": "ses_1"}])
    for one in parts:
        write(storage / f"part/msg_1/{one['id']}.json", [one])
    export = {"info": session, "messages": [{"info": {"id": "msg_1"}, "parts": parts}]}
    for place in (storage, write(tmp_path / "export.json", [export])):
        recording = read_transcripts([place])
        assert (recording.broken_lines, recording.other_files) == (1, 0)
        assert [one.directory for one in recording.calls] == [HERE] * 3
        assert [one.refused for one in recording.calls] == [False, False, True]
        assert [served(one) for one in recording.calls] == [
            ("run_command", "make"),
            ("edit_file", f"{HERE}/a"),
            ("run_command", "rm x"),
        ]
