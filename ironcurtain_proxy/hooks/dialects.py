"""The dialects of all clients."""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.hooks import claude, codex, gemini
from ironcurtain_proxy.hooks.door import HookDialect
from ironcurtain_proxy.hooks.events import HookClient

DIALECTS: Final[Mapping[HookClient, HookDialect]] = {
    "claude": HookDialect(
        client="claude",
        events=claude.EVENTS,
        own_tools=claude.OWN_TOOLS,
        asks="always",
        reads=(
            ".claude/plans",
            ".claude/skills",
            ".claude/plugins",
            ".claude/projects/{project}",
        ),
        writes=(".claude/plans", ".claude/projects/{project}/memory"),
        seconds=585,
        read_event=claude.read_event,
        answer_before=claude.answer_before,
        answer_question=claude.answer_question,
    ),
    "codex": HookDialect(
        client="codex",
        events=codex.EVENTS,
        own_tools=codex.OWN_TOOLS,
        asks="never",
        reads=(".codex/skills", ".codex/prompts"),
        seconds=585,
        read_event=codex.read_event,
        answer_before=codex.answer_before,
        answer_question=codex.answer_question,
    ),
    "gemini": HookDialect(
        client="gemini",
        events=gemini.EVENTS,
        own_tools=gemini.OWN_TOOLS,
        asks="at a terminal",
        seconds=45,
        read_event=gemini.read_event,
        answer_before=gemini.answer_before,
        answer_question=gemini.answer_question,
    ),
}
