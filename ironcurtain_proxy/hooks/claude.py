"""The hooks of Claude Code: its events, and exactly the answers that it documents.

Tried with 2.1.332 and 2.1.269. A hook that prints something unknown is skipped and the call runs,
so an answer holds no field beyond those of its event.
"""

import errno
import os
import re
from pathlib import Path
from typing import Final

from ironcurtain_proxy.facts.client_tools import ClientCalls
from ironcurtain_proxy.hooks.events import (
    WHY,
    AnswerForms,
    HookDialect,
    ShellPrefix,
    ShellText,
    UnreadableEventError,
    text_of,
)
from ironcurtain_proxy.hooks.paths import PathForm
from ironcurtain_proxy.model.values import Arguments, Json, words
from ironcurtain_proxy.private_files import opened

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
_SETS: Final = r"(?:\\builtin )?(?:set|setopt|shopt|unalias|unset) [\w '-]+"
_PREPARED: Final = rf"\{{ {_SETS}(?:(?: \|\||;) {_SETS})*;? \}} >/dev/null 2>&1 \|\| true && "
"""Options, aliases and functions that the client sets and takes away in its shell."""
_SOURCED: Final = r"source %s/(?:%s)/(?!\S*\.\.)[\w./-]+ 2>/dev/null \|\| true && "
_SNAPSHOTS: Final = ("shell-snapshots", "session-env")
_SCHEDULED: Final = ".claude/scheduled_tasks.json"
"""The project's file with prompts for later sessions."""
_NEWS: Final = "<task-notification>"
_SCHEDULING: Final = words("CronCreate ScheduleWakeup SetGoal")
_MOST_FILES: Final = 10_000
_MOST_BYTES: Final = 256 << 20
"""The most files, and bytes of them, that are looked through for such calls."""
_BLOCK: Final = 1 << 20


def _calls(tool: str, given: Arguments) -> ClientCalls:
    if tool == "Bash":
        # The client knows no such argument, so it must not move what is judged.
        given = {name: value for name, value in given.items() if name != "cwd"}
    if tool == "CronCreate" and given.get("durable"):
        return (("Write", {"file_path": _SCHEDULED, "content": str(given.get("prompt"))}),)
    is_command = tool == "Monitor" and "ws" not in given
    return (("Bash", {"command": given.get("command")}) if is_command else (tool, given),)


def _prompt(payload: Arguments) -> str | None:
    """Return the user's words; empty if an agent or the client may have written them.

    A prompt that an agent scheduled comes like its user's, also after the session was resumed, and
    so do the news of work in the background, whose words are the agent's or that work's.
    """
    text, here = text_of(payload, "prompt"), Path(text_of(payload, "cwd") or "/")
    if text.startswith(_NEWS):
        return None
    if text.lstrip().startswith("<") or _NEWS in text:
        return ""
    transcript = Path(text_of(payload, "transcript_path") or "/none.jsonl")
    try:
        is_scheduled = any((above / _SCHEDULED).exists() for above in (here, *here.parents))
        return "" if is_scheduled or _has_scheduled(transcript) else text
    except (OSError, ValueError):
        return ""


def _has_scheduled(transcript: Path) -> bool:
    """Return whether the session, or an agent of it, has scheduled a prompt; also if nobody knows.

    Raises:
        OSError: a transcript is no file that can be read, or too much is to be read.
    """
    files, left = [transcript] if transcript.exists() else [], _MOST_BYTES
    for looked, (place, _, names) in enumerate(os.walk(transcript.with_suffix(""))):
        files += [Path(place, name) for name in names if name.endswith(".jsonl")]
        if looked + len(files) > _MOST_FILES:
            raise OSError(errno.E2BIG, "too many transcripts")
    calls = [b'"name":"%s"' % tool.encode() for tool in _SCHEDULING]
    for file in files:
        with opened(file) as transcript_file:
            block = b""
            while more := transcript_file.read(_BLOCK):
                left -= len(more)
                block = block[-max(map(len, calls)) :] + more
                if left < 0 or any(one in block for one in calls):
                    return True
    return False


def read_shell(text: str, directory: str) -> ShellText | None:
    """Return what a text for the client's shell runs, or None if it is no command of the agent's.

    Hooks and servers of other people are started by the same prefix. Around a command of the agent
    stands, tried with the same versions:

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
    is_zsh = f"{_SNAPSHOTS[0]}/snapshot-zsh-" in before
    sourced = _SOURCED % (re.escape(directory), "|".join(_SNAPSHOTS))
    around = re.compile(f"(?:{sourced}|{_PREPARED})*", re.ASCII)
    return ShellText(
        command=command,
        shell="/bin/zsh" if is_zsh else "/bin/bash",
        directory_file=end[1],
        before=before,
        is_known=around.fullmatch(before.removeprefix(_TOO_OLD)) is not None,
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


def before_call(decision: str) -> Json:
    """Return the form of an answer to `PreToolUse`."""
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": WHY,
        }
    }


def own_question(decision: Json) -> Json:
    """Return the form of an answer to `PermissionRequest`."""
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


DIALECT: Final = HookDialect(
    client="claude",
    prompting_tools=_SCHEDULING,
    skill_tools=words("Skill SlashCommand"),
    our_tools=("mcp__ironcurtain",),
    calls_of=_calls,
    # macOS writes another blank into the names of its pictures of the screen.
    paths=PathForm(has_home=True, sought=lambda _, path: path.endswith((" AM.png", " PM.png"))),
    asks="always",
    # In `bypassPermissions`, `ask` opens no dialog for what the client itself calls sensitive, such
    # as `rm -rf .git`: the call runs. In `auto` a check of its maker's answers that instead.
    asking_modes=frozenset({"", "default", "acceptEdits", "plan"}),
    before=AnswerForms(
        approve=before_call("allow"), ask=before_call("ask"), refuse=before_call("deny")
    ),
    question=AnswerForms(
        approve=own_question({"behavior": "allow"}),
        refuse=own_question({"behavior": "deny", "message": WHY}),
    ),
    entry=lambda line: line.hook(command=line.words[0], args=[*line.words[1:]]),
    notice="`ironcurtain-proxy doctor` says whether its commands run in a sandbox. In its auto "
    "mode (new versions begin so) its dialog does not ask for us: only a reviewer approves there",
    project_files=(".claude/settings.json", ".claude/settings.local.json"),
    server_files=((".mcp.json", "mcpServers"), (".claude/agents/**/*.md", "")),
    settings=AnswerForms(refuse={"decision": "block", "reason": WHY}),
    is_off=lambda document: document.get("disableAllHooks", False) is not False,
    prefix=ShellPrefix(variable="CLAUDE_CODE_SHELL_PREFIX", read=read_shell),
    prompt=_prompt,
    is_last=lambda reason: reason not in {"clear", "resume"},
)
