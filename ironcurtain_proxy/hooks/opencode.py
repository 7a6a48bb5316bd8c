"""The hooks of opencode: what its plugin of ours (`opencode_plugin.js`) says, and is answered.

Tried with 1.18.33. The client has no hooks in a file but programs of its own, which its plugin
starts; so the form of the events is ours. A plugin can deny a call, by an error, and nothing else:
a question that nobody of ours answers is a denial. A sub-agent has a session of its own, and its
prompt, which the model wrote, comes like a user's.
"""

from collections.abc import Mapping
from typing import Final, assert_never

from ironcurtain_proxy.facts.client_tools import of_opencode
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
    SessionStarted,
    TurnEnded,
    UnreadableEventError,
    Verdict,
    directory_of,
    object_of,
    text_of,
)
from ironcurtain_proxy.model.values import Arguments, Json, words

EVENTS: Final[Mapping[str, int]] = dict.fromkeys(
    ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart"), 600
)
"""The events that the plugin reports. It waits for each answer without an end."""

OWN_TOOLS: Final = words("invalid plan_enter plan_exit question skill task todoread todowrite")
"""Tools that touch nothing but the client's own state, or whose calls arrive one by one."""
_SERVER: Final = "ironcurtain_"
"""The beginning of the names of tools of this proxy, as the client writes `SERVER_TOOL`."""


def read_event(event: str, payload: Arguments) -> HookEvent:
    """Return an event.

    Raises:
        UnreadableEventError: it does not have the form that the plugin gives it.
    """
    agent = text_of(payload, "agent")
    caller = CallingAgent(agent, "task") if agent else CallingAgent()
    match event:
        case "PreToolUse" | "PostToolUse":
            return _of_call(event, payload, caller)
        case "UserPromptSubmit":
            return Prompt(text_of(payload, "prompt"), caller)
        case "Stop":
            return TurnEnded(caller)
        case "SessionStart":
            return SessionStarted()
        case _:
            raise UnreadableEventError("the event is unknown")


def _of_call(event: str, payload: Arguments, caller: CallingAgent) -> HookEvent:
    tool = text_of(payload, "tool")
    if not tool:
        raise UnreadableEventError("tool is not there")
    calls = of_opencode(tool, object_of(payload, "args"))
    tool = f"mcp__{tool}" if tool.startswith(_SERVER) else tool
    identifier = text_of(payload, "id")
    if event == "PostToolUse":
        return AfterCall(id=identifier, caller=caller, tool=tool, calls=calls)
    directory = directory_of(payload)
    return BeforeCall(id=identifier, caller=caller, tool=tool, calls=calls, directory=directory)


def answer_before(verdict: Verdict) -> Json:
    """Return the answer before a call, which the plugin turns into silence or an error."""
    match verdict:
        case NoObjection() | Approve():
            return {"decision": "allow"}
        case AskInClient(why=why) | Refuse(why=why):
            return {"decision": "deny", "reason": why or "IronCurtain denies it"}
        case _:
            assert_never(verdict)


def answer_question(_verdict: Verdict) -> Json:
    """Return silence: the client never reports its own question."""
    return {}


DIALECT: Final = HookDialect(
    client="opencode",
    events=EVENTS,
    own_tools=OWN_TOOLS,
    asks="never",
    reads=(".local/share/opencode/tool-output", ".config/opencode/skills"),
    seconds=585,
    read_event=read_event,
    answer_before=answer_before,
    answer_question=answer_question,
)
