"""The hooks of Claude Code: its events, and exactly the answers that it documents.

Tried with 2.1.332. A hook that prints something unknown is skipped and the call runs, so an answer
holds no field beyond those of its event.
"""

from collections.abc import Mapping
from typing import Final, assert_never

from ironcurtain_proxy.hooks.events import (
    AfterCall,
    Approve,
    AskInClient,
    BeforeCall,
    CallingAgent,
    HookDialect,
    HookEvent,
    NoObjection,
    OwnQuestion,
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
    "PreToolUse": 600,
    "PermissionRequest": 600,
    "PostToolUse": 60,
    "PostToolUseFailure": 60,
    "PermissionDenied": 60,
    "UserPromptSubmit": 30,
    "Stop": 60,
    "SubagentStop": 60,
    "SessionStart": 60,
    "SessionEnd": 5,
}
"""The events that are hooked, each with the seconds that the client waits."""

OWN_TOOLS: Final = words(
    """
    Agent AskUserQuestion BashOutput CronCreate CronDelete CronList EnterPlanMode ExitPlanMode
    KillBash KillShell ListMcpResourcesTool ReportFindings ScheduleWakeup SendMessage Skill
    SlashCommand StructuredOutput Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate
    TodoRead TodoWrite ToolSearch WebSearch
    """
)
"""Tools that touch nothing but the client's own state, or whose calls arrive one by one."""
_KEPT_ALIVE: Final = frozenset({"clear", "resume"})
"""The reasons of an end of a session after which the client's process goes on."""
_ASKING_MODES: Final = frozenset({"", "default", "acceptEdits", "plan"})
"""The modes in which `ask` opens a dialog. In `bypassPermissions` it opens none for what the client
itself calls sensitive, such as `rm -rf .git`: the call runs (tried with 2.1.332)."""


def read_event(event: str, payload: Arguments) -> HookEvent:
    """Return an event.

    Raises:
        UnreadableEventError: it does not have the documented form.
    """
    caller = CallingAgent(text_of(payload, "agent_id"), text_of(payload, "agent_type"))
    if "ToolUse" in event or "Permission" in event:
        return _of_call(event, payload, caller)
    match event:
        case "UserPromptSubmit":
            return Prompt(text_of(payload, "prompt"))
        case "Stop" | "SubagentStop":
            return TurnEnded(caller if event == "SubagentStop" else CallingAgent())
        case "SessionStart":
            return SessionStarted()
        case "SessionEnd":
            return SessionEnded(is_last=text_of(payload, "reason") not in _KEPT_ALIVE)
        case _:
            raise UnreadableEventError("the event is unknown")


def _of_call(event: str, payload: Arguments, caller: CallingAgent) -> HookEvent:
    tool = _tool(payload)
    given = object_of(payload, "tool_input")
    if tool == "Bash":
        # The client knows no such argument, so it must not move what is judged.
        given = {name: value for name, value in given.items() if name != "cwd"}
    is_command = tool == "Monitor" and "ws" not in given
    calls = (("Bash", {"command": given.get("command")}) if is_command else (tool, given),)
    if event == "PermissionRequest":
        return OwnQuestion(caller=caller, tool=tool, calls=calls, directory=directory_of(payload))
    identifier = text_of(payload, "tool_use_id")
    if event == "PreToolUse":
        directory = directory_of(payload)
        return BeforeCall(
            id=identifier,
            caller=caller,
            tool=tool,
            calls=calls,
            directory=directory,
            has_dialog=text_of(payload, "permission_mode") in _ASKING_MODES,
        )
    error = ""
    if event != "PostToolUse":
        error = str(payload.get("error") or payload.get("reason") or "the call failed")[:500]
    return AfterCall(
        id=identifier,
        caller=caller,
        tool=tool,
        calls=calls,
        error=error,
        is_refused=event == "PermissionDenied",
    )


def _tool(payload: Arguments) -> str:
    tool = text_of(payload, "tool_name")
    if not tool:
        raise UnreadableEventError("tool_name is not there")
    return tool


def answer_before(verdict: Verdict) -> Json:
    """Return the answer to `PreToolUse`; silence where the policy has no objection."""
    match verdict:
        case NoObjection():
            return {}
        case Approve(why=why):
            return _before("allow", why)
        case AskInClient(why=why):
            return _before("ask", why)
        case Refuse(why=why):
            return _before("deny", why)
        case _:
            assert_never(verdict)


def answer_question(verdict: Verdict) -> Json:
    """Return the answer to `PermissionRequest`: an approval or a refusal; else its user decides."""
    match verdict:
        case NoObjection() | AskInClient():
            return {}
        case Approve():
            return _asked({"behavior": "allow"})
        case Refuse(why=why):
            return _asked({"behavior": "deny", "message": why})
        case _:
            assert_never(verdict)


def _before(decision: str, why: str) -> Json:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": why,
        }
    }


def _asked(decision: Json) -> Json:
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


DIALECT: Final = HookDialect(
    client="claude",
    events=EVENTS,
    own_tools=OWN_TOOLS,
    asks="always",
    reads=(
        ".claude/plans",
        ".claude/skills",
        ".claude/plugins",
        ".claude/projects/{project}",
    ),
    writes=(".claude/plans", ".claude/projects/{project}/memory"),
    seconds=585,
    read_event=read_event,
    answer_before=answer_before,
    answer_question=answer_question,
)
