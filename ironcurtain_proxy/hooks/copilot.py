"""The hooks of GitHub Copilot CLI: its events, and exactly the answers that it takes.

Tried with 1.0.102. An answer that it does not understand lets the call run; an exit code other than
0 denies it. Calls have no id. `permissionRequest` comes before every call, also where nobody would
be asked, so it is not hooked. A prompt also comes for each sub-agent, written by the model, and a
repository's hooks may write one: neither is the user's.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, assert_never

import orjson

from ironcurtain_proxy.facts.client_tools import of_copilot
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
    "preToolUse": 600,
    "postToolUse": 60,
    "postToolUseFailure": 60,
    "userPromptSubmitted": 30,
    "agentStop": 60,
    "sessionStart": 60,
    "sessionEnd": 5,
}
"""The events that are hooked, each with the seconds that the client is told to wait."""

OWN_TOOLS: Final = words(
    """
    ask_user exit_plan_mode fetch_copilot_cli_documentation list_agents list_bash read_agent
    read_bash report_intent session_store_sql skill sql stop_bash store_memory task update_todo
    write_agent
    """
)
"""Tools that touch nothing but the client's own state, or whose calls arrive one by one. Text that
is written to a running program (`write_bash`) is not among them."""
_SERVER: Final = "ironcurtain-"
"""The beginning of the names of tools of this proxy, as the client writes `SERVER-TOOL`."""
_MOST_FILES: Final = 100


def read_event(event: str, payload: Arguments) -> HookEvent:
    """Return an event.

    Raises:
        UnreadableEventError: it does not have the documented form.
    """
    caller = CallingAgent(text_of(payload, "agentId"), text_of(payload, "agentType"))
    match event:
        case "preToolUse" | "postToolUse" | "postToolUseFailure":
            return _of_call(event, payload, caller)
        case "userPromptSubmitted":
            is_written = not caller.id and _has_prompt_hooks(directory_of(payload))
            return Prompt("" if is_written else text_of(payload, "prompt"), caller)
        case "agentStop":
            return TurnEnded(caller)
        case "sessionStart":
            return SessionStarted()
        case "sessionEnd":
            # It comes after each turn of a session without a terminal, too.
            return SessionEnded(is_last=text_of(payload, "reason") == "user_exit")
        case _:
            raise UnreadableEventError("the event is unknown")


def _of_call(event: str, payload: Arguments, caller: CallingAgent) -> HookEvent:
    tool = text_of(payload, "toolName")
    if not tool:
        raise UnreadableEventError("toolName is not there")
    calls = of_copilot(tool, _given(payload))
    tool = f"mcp__{tool}" if tool.startswith(_SERVER) else tool
    if event == "preToolUse":
        directory = directory_of(payload)
        return BeforeCall(id="", caller=caller, tool=tool, calls=calls, directory=directory)
    error = ""
    if event == "postToolUseFailure":
        error = text_of(payload, "error")[:500] or "the tool failed"
    return AfterCall(id="", caller=caller, tool=tool, calls=calls, error=error)


def _given(payload: Arguments) -> Arguments:
    """Return the arguments of a call: an object, or in older versions its JSON."""
    found = payload.get("toolArgs")
    if not isinstance(found, str):
        return object_of(payload, "toolArgs")
    try:
        return object_of({"toolArgs": orjson.loads(found)}, "toolArgs")
    except ValueError:
        raise UnreadableEventError("toolArgs is no JSON") from None


def _has_prompt_hooks(directory: str) -> bool:
    """Return whether a repository's own hooks may write a prompt, or cannot be looked at."""
    try:
        return any('"prompt"' in file.read_text("utf-8") for file in _hook_files(directory))
    except (OSError, UnicodeDecodeError):
        return True


def _hook_files(directory: str) -> Iterator[Path]:
    here = Path(directory)
    for above in (here, *here.parents):
        yield from islice((above / ".github/hooks").glob("*.json"), _MOST_FILES)


def answer_before(verdict: Verdict) -> Json:
    """Return the answer to `preToolUse`; silence where the policy has no objection."""
    match verdict:
        case NoObjection():
            return {}
        case Approve(why=why):
            return {"permissionDecision": "allow", "permissionDecisionReason": why}
        case AskInClient(why=why):
            return {"permissionDecision": "ask", "permissionDecisionReason": why}
        case Refuse(why=why):
            told = why or "IronCurtain denies it"
            return {"permissionDecision": "deny", "permissionDecisionReason": told}
        case _:
            assert_never(verdict)


def answer_question(_verdict: Verdict) -> Json:
    """Return silence: the event of the client's own question is not hooked."""
    return {}


DIALECT: Final = HookDialect(
    client="copilot",
    events=EVENTS,
    own_tools=OWN_TOOLS,
    asks="always",
    reads=(".copilot/session-state", ".copilot/skills"),
    seconds=585,
    read_event=read_event,
    answer_before=answer_before,
    answer_question=answer_question,
)
