"""The dialects of all clients, and the entry that starts their hooks."""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.hooks import claude
from ironcurtain_proxy.hooks.door import HookDialect
from ironcurtain_proxy.hooks.events import HookClient

DIALECTS: Final[Mapping[HookClient, HookDialect]] = {
    "claude": HookDialect(
        client="claude",
        events=claude.EVENTS,
        own_tools=claude.OWN_TOOLS,
        asks=True,
        seconds=585,
        read_event=claude.read_event,
        answer_before=claude.answer_before,
        answer_question=claude.answer_question,
    ),
}
