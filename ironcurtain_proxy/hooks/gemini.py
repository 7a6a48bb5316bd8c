"""The hooks of Gemini CLI: its events, and exactly the answers that it documents.

Tried with 0.61.0. It gives calls no id, so the end of one is known by its tool and arguments. `ask`
opens its dialog; without a terminal the program would hang, so `ask` is answered only where it has
one.
"""

from collections.abc import Mapping
from typing import Final, assert_never

from ironcurtain_proxy.facts.client_tools import of_gemini
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
    "BeforeTool": 60,
    "AfterTool": 60,
    "BeforeAgent": 30,
    "AfterAgent": 30,
    "SessionStart": 60,
    "SessionEnd": 5,
}
"""The events that are hooked, each with the seconds that the client waits."""

OWN_TOOLS: Final = words(
    """
    activate_skill ask_user complete_task enter_plan_mode exit_plan_mode google_web_search
    invoke_agent list_background_processes read_background_output update_topic write_todos
    """
)
"""Tools that touch nothing but the client's own state, or whose calls arrive one by one."""


def read_event(event: str, payload: Arguments) -> HookEvent:
    """Return an event.

    Raises:
        UnreadableEventError: it does not have the documented form.
    """
    match event:
        case "BeforeTool" | "AfterTool":
            return _of_call(event, payload)
        case "BeforeAgent":
            return Prompt(text_of(payload, "prompt"))
        case "AfterAgent":
            return TurnEnded(CallingAgent())
        case "SessionStart":
            return SessionStarted()
        case "SessionEnd":
            return SessionEnded(is_last=text_of(payload, "reason") != "clear")
        case _:
            raise UnreadableEventError("the event is unknown")


def _of_call(event: str, payload: Arguments) -> HookEvent:
    tool = text_of(payload, "tool_name")
    calls = of_gemini(tool, object_of(payload, "tool_input"))
    if not tool or not calls:
        raise UnreadableEventError("it names no tool, or nothing that the tool would do")
    if event == "BeforeTool":
        directory = directory_of(payload)
        return BeforeCall(id="", caller=CallingAgent(), tool=tool, calls=calls, directory=directory)
    response = payload.get("tool_response")
    failed = isinstance(response, dict) and bool(response.get("error"))
    error = "the tool failed" if failed else ""
    return AfterCall(id="", caller=CallingAgent(), tool=tool, calls=calls, error=error)


def answer_before(verdict: Verdict) -> Json:
    """Return the answer to `BeforeTool`; silence where nothing stands against the call."""
    match verdict:
        case NoObjection() | Approve():
            return {}
        case AskInClient(why=why):
            return {"decision": "ask", "reason": why}
        case Refuse(why=why):
            return {"decision": "deny", "reason": why}
        case _:
            assert_never(verdict)


def answer_question(_verdict: Verdict) -> Json:
    """Return silence: the client has no event for its own question."""
    return {}


DIALECT: Final = HookDialect(
    client="gemini",
    events=EVENTS,
    own_tools=OWN_TOOLS,
    asks="at a terminal",
    seconds=45,
    read_event=read_event,
    answer_before=answer_before,
    answer_question=answer_question,
)
