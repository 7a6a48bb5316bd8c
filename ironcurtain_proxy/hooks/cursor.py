"""The hooks of Cursor: its events, and exactly the answers that it documents.

Written after the documents of Cursor 3, and tried with inputs of that form only. `ask` is lost in
its Auto-review mode, so a question that nobody of ours answers is a denial. `preToolUse` comes
before every tool; the older events before a command and a read would judge the same call twice.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, assert_never

from ironcurtain_proxy.facts.client_tools import ClientCalls, of_cursor
from ironcurtain_proxy.hooks.events import (
    AfterCall,
    Approve,
    AskInClient,
    BeforeCall,
    CallingAgent,
    HookDialect,
    HookEvent,
    NoObjection,
    Prompt,
    Refuse,
    SessionEnded,
    SessionStarted,
    TurnEnded,
    UnreadableEventError,
    Verdict,
    directory_of,
    object_of,
    text_of,
)
from ironcurtain_proxy.model.values import Arguments, Json, words

EVENTS: Final[Mapping[str, int]] = {
    "preToolUse": 60,
    "beforeMCPExecution": 60,
    "postToolUse": 60,
    "postToolUseFailure": 60,
    "beforeSubmitPrompt": 30,
    "stop": 60,
    "subagentStop": 60,
    "sessionStart": 60,
    "sessionEnd": 5,
}
"""The events that are hooked, each with the seconds that the client is told to wait."""

_OURS: Final = "mcp__ironcurtain"
OWN_TOOLS: Final = words("Task TodoWrite TodoRead AskQuestion SwitchMode CreatePlan WebSearch")
"""Tools that touch nothing but the client's own state, or whose calls arrive one by one."""


def read_event(event: str, payload: Arguments) -> HookEvent:
    """Return an event.

    Raises:
        UnreadableEventError: it does not have the documented form.
    """
    match event:
        case "preToolUse" | "postToolUse" | "postToolUseFailure":
            return _of_call(event, payload)
        case "beforeMCPExecution":
            return _of_server(payload)
        case "beforeSubmitPrompt":
            return Prompt(text_of(payload, "prompt"))
        case "stop" | "subagentStop":
            return TurnEnded(_caller(payload) if event == "subagentStop" else CallingAgent())
        case "sessionStart":
            return SessionStarted()
        case "sessionEnd":
            # The program has one process for many conversations.
            return SessionEnded(is_last=False)
        case _:
            raise UnreadableEventError("the event is unknown")


def _of_call(event: str, payload: Arguments) -> HookEvent:
    tool = text_of(payload, "tool_name")
    if not tool:
        raise UnreadableEventError("tool_name is not there")
    # Which server it goes to, only the event before the server's call says.
    tool = _OURS if tool.startswith("MCP:") else tool
    calls: ClientCalls = of_cursor(tool, object_of(payload, "tool_input"))
    identifier, caller = text_of(payload, "tool_use_id"), _caller(payload)
    if event == "preToolUse":
        directory = _directory(payload)
        return BeforeCall(id=identifier, caller=caller, tool=tool, calls=calls, directory=directory)
    error = ""
    if event == "postToolUseFailure":
        error = text_of(payload, "error_message")[:500] or "the tool failed"
    is_refused = payload.get("failure_type") == "permission_denied"
    return AfterCall(
        id=identifier, caller=caller, tool=tool, calls=calls, error=error, is_refused=is_refused
    )


def _of_server(payload: Arguments) -> BeforeCall:
    """Return a call of a server: one of this proxy is judged when it arrives there."""
    name = text_of(payload, "tool_name")
    with suppress(ValueError):
        program = (shlex.split(text_of(payload, "command")) or [""])[0]
        own = Path(sys.prefix) / "bin/ironcurtain-proxy"
        if program.startswith("/") and os.path.realpath(program) == os.path.realpath(own):
            name = _OURS
    tool = name if name == _OURS else f"MCP:{name}"
    return BeforeCall(
        id="",
        caller=_caller(payload),
        tool=tool,
        calls=((tool, {}),),
        directory=_directory(payload),
    )


def _caller(payload: Arguments) -> CallingAgent:
    return CallingAgent(text_of(payload, "subagent_id"), text_of(payload, "subagent_type"))


def _directory(payload: Arguments) -> str:
    if payload.get("cwd"):
        return directory_of(payload)
    roots = payload.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots else None
    return directory_of({"cwd": first})


def answer_before(verdict: Verdict) -> Json:
    """Return the answer before a call."""
    match verdict:
        case NoObjection() | Approve():
            return {"permission": "allow"}
        case AskInClient(why=why) | Refuse(why=why):
            told = why or "IronCurtain denies it"
            return {"permission": "deny", "user_message": told, "agent_message": told}
        case _:
            assert_never(verdict)


def answer_question(_verdict: Verdict) -> Json:
    """Return silence: the client has no event for its own question."""
    return {}


DIALECT: Final = HookDialect(
    client="cursor",
    events=EVENTS,
    own_tools=OWN_TOOLS,
    asks="never",
    reads=(".cursor/plans", ".cursor/skills", ".cursor/projects/{project}"),
    writes=(".cursor/plans",),
    seconds=45,
    read_event=read_event,
    answer_before=answer_before,
    answer_question=answer_question,
)
