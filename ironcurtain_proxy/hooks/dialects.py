"""The dialects of all clients."""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.hooks import claude, codex, cursor, gemini
from ironcurtain_proxy.hooks.events import HookClient, HookDialect

DIALECTS: Final[Mapping[HookClient, HookDialect]] = {
    one.client: one for one in (claude.DIALECT, codex.DIALECT, gemini.DIALECT, cursor.DIALECT)
}
