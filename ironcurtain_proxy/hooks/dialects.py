"""The dialects of all clients."""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.hooks import claude, codex, copilot, cursor, gemini, opencode
from ironcurtain_proxy.hooks.events import HookClient, HookDialect

DIALECTS: Final[Mapping[HookClient, HookDialect]] = {
    one.DIALECT.client: one.DIALECT for one in (claude, codex, gemini, cursor, copilot, opencode)
}
