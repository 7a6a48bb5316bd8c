"""The hooks of Codex CLI: its events, and exactly the answers that it takes.

Tried with 0.171.0. It runs a call whose answer it does not understand: one unknown field, an empty
reason, and `ask` do that. So its answers are a denial with a reason, or silence, and a question
that nobody of ours answers is a denial. Text that is written to a running terminal has no event.
"""

from collections.abc import Mapping
from typing import Final, assert_never

from msgspec.structs import replace

from ironcurtain_proxy.facts.client_tools import ClientCalls, of_patch
from ironcurtain_proxy.hooks.claude import answer_question as answer_claude_question
from ironcurtain_proxy.hooks.claude import read_event as read_claude_event
from ironcurtain_proxy.hooks.events import (
    AfterCall,
    Approve,
    AskInClient,
    BeforeCall,
    HookDialect,
    HookEvent,
    NoObjection,
    OwnQuestion,
    Refuse,
    UnreadableEventError,
    Verdict,
)
from ironcurtain_proxy.model.values import Arguments, Json, words

EVENTS: Final[Mapping[str, int]] = {
    "PreToolUse": 600,
    "PermissionRequest": 600,
    "PostToolUse": 60,
    "UserPromptSubmit": 30,
    "Stop": 60,
    "SessionStart": 60,
}
"""The events that are hooked, each with the seconds that the client waits."""

OWN_TOOLS: Final = words(
    "update_plan request_user_input get_goal create_goal update_goal web_search"
)
"""Tools that touch nothing but the client's own state."""


def read_event(event: str, payload: Arguments) -> HookEvent:
    """Return an event, whose form is that of Claude Code.

    Raises:
        UnreadableEventError: it does not have the documented form.
    """
    found = read_claude_event(event, payload)
    if isinstance(found, BeforeCall | OwnQuestion | AfterCall):
        return replace(found, calls=_calls(found.tool, found.calls))
    return found


def _calls(tool: str, calls: ClientCalls) -> ClientCalls:
    given = calls[0][1]
    match tool:
        case "apply_patch":
            found = of_patch(given.get("command", given.get("patch", given.get("input"))))
            if not found:
                raise UnreadableEventError("the patch names no file")
            return found
        case "view_image":
            return (("Read", {"file_path": given.get("path")}),)
        case _:
            return calls


def answer_before(verdict: Verdict) -> Json:
    """Return the answer to `PreToolUse`, which is silence or a denial."""
    match verdict:
        case NoObjection() | Approve():
            return None
        case AskInClient(why=why) | Refuse(why=why):
            return {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": why or "IronCurtain denies it",
                }
            }
        case _:
            assert_never(verdict)


def answer_question(verdict: Verdict) -> Json:
    """Return the answer to `PermissionRequest`; silence leaves it to the client's user."""
    return answer_claude_question(verdict) or None


DIALECT: Final = HookDialect(
    client="codex",
    events=EVENTS,
    own_tools=OWN_TOOLS,
    asks="never",
    reads=(".codex/skills", ".codex/prompts"),
    seconds=585,
    read_event=read_event,
    answer_before=answer_before,
    answer_question=answer_question,
)
