"""The hooks of Claude Code: its events, and exactly the answers that it documents.

Tried with 2.1.332. A hook that prints something unknown is skipped and the call runs, so an answer
holds no field beyond those of its event.
"""

import os
import re
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
    ShellText,
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
_QUOTED: Final = re.compile(r"""'([^']*)'|"(['!])"|\\(.)|([\w@%+=:,./-]+)""", re.DOTALL | re.ASCII)
"""The parts of a word as the client quotes it."""
_END: Final = re.compile(
    r"(?: < /dev/null)? && pwd -P >\| (/[\w./-]*/claude-[0-9a-f]+-cwd)\Z", re.ASCII
)
_TOO_OLD: Final = (
    "{ case \"${BASH_VERSINFO-}\" in '2'|'3') \\builtin printf '%s\\n' "
    "'__CLAUDE_CODE_DID_NOT_RUN_BASH_TOO_OLD='\"${BASH_VERSION-}\" >&2; \\builtin exit 126; "
    "\\exit 126;; esac; } && "
)
_SOURCED: Final = re.compile(r"source (/[\w./-]+) 2>/dev/null \|\| true && ", re.ASCII)
_PREPARED: Final = re.compile(
    r"\{ \\builtin [a-z]+ [\w '-]+(?:(?: \|\||;) \\builtin [a-z]+ [\w '-]+)*;? \} "
    r">/dev/null 2>&1 \|\| true && ",
    re.ASCII,
)
"""Options, aliases and functions that the client sets and takes away in its shell."""
_SNAPSHOTS: Final = (".claude/shell-snapshots/", ".claude/session-env/")


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


def read_shell(text: str, home: str) -> ShellText | None:
    """Return what a text for the client's shell runs, or None if it is no command of the agent's.

    Hooks and servers of other people are started by the same prefix. Around a command of the agent
    stands, tried with 2.1.332:

        source SNAPSHOT 2>/dev/null || true && … eval 'COMMAND' < /dev/null && pwd -P >| FILE

    Raises:
        UnreadableEventError: it may be one, in a form that is not known.
    """
    if "eval " not in text or " && pwd -P >| " not in text:
        return None
    end = _END.search(text)
    before, _, word = text[: end.start() if end else 0].partition("eval ")
    command = _unquoted(word)
    if end is None or not command:
        raise UnreadableEventError("the client starts commands in a form that is not known")
    is_zsh = f"{_SNAPSHOTS[0]}snapshot-zsh-" in before
    return ShellText(
        command=command,
        shell="/bin/zsh" if is_zsh else "/bin/bash",
        directory_file=end[1],
        is_known=_is_known(before, home),
    )


def _unquoted(word: str) -> str | None:
    parts, at = [], 0
    while at < len(word):
        found = _QUOTED.match(word, at)
        if found is None:
            return None
        parts += [one for one in found.groups() if one is not None]
        at = found.end()
    return "".join(parts)


def _is_known(before: str, home: str) -> bool:
    rest = before.removeprefix(_TOO_OLD)
    while rest:
        found = _SOURCED.match(rest)
        if found is not None:
            place = found[1].removeprefix(f"{home}/")
            if not place.startswith(_SNAPSHOTS) or ".." in place:
                return False
        else:
            found = _PREPARED.match(rest)
        if found is None:
            return False
        rest = rest[found.end() :]
    return True


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
    makes=(".claude/projects", *map(os.path.dirname, _SNAPSHOTS)),
    writes=(".claude/plans", ".claude/projects/{project}/memory"),
    seconds=585,
    read_event=read_event,
    read_shell=read_shell,
    answer_before=answer_before,
    answer_question=answer_question,
)
