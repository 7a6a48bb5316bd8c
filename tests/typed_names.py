"""A program that imports every public name; mypy reads it with all else, and nobody runs it."""

from typing import assert_type

from ironcurtain_proxy import (
    Approved,
    Candidate,
    Declined,
    Escalation,
    EscalationInbox,
    IronCurtainError,
    Settings,
    ToolCallRequest,
    ToolCallResponse,
    TrustedProcess,
)


def ask(escalation: Escalation) -> Approved | Declined:
    if escalation.candidates:
        assert_type(escalation.candidates[0].description, str)
        offered: Candidate = escalation.candidates[0]
        return Approved(remember=offered)
    return Declined(note="not now")


async def main(inbox: EscalationInbox) -> None:
    async with TrustedProcess(Settings.from_environment(), on_escalation=ask) as kernel:
        answer = await kernel.call_tool("files", "read_file", {"path": "notes.txt"})
        assert_type(answer, ToolCallResponse)
        assert_type(answer.rule, str)
        await kernel.handle_tool_call(ToolCallRequest(server="files", tool="read_file"))
        assert_type([tool.tool for tool in await kernel.list_tools()], list[str])
    for pending in inbox.pending():
        assert_type(await inbox.approve(pending.id, remember=pending.candidates[0]), bool)
    raise IronCurtainError("none of these is a loose object")
