"""The dialects of all clients, and the tools that they have in common."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.config.annotating.annotate import annotate, known_servers
from ironcurtain_proxy.config.annotating.texts import ReadServer
from ironcurtain_proxy.facts.client_tools import FETCH, FILES, SHELL_TOOL
from ironcurtain_proxy.hooks import claude, codex, copilot, cursor, gemini, opencode
from ironcurtain_proxy.hooks.events import HookClient, HookDialect
from ironcurtain_proxy.model.server import SHELL
from ironcurtain_proxy.model.values import Json

DIALECTS: Final[Mapping[HookClient, HookDialect]] = {
    one.DIALECT.client: one.DIALECT for one in (claude, codex, gemini, cursor, copilot, opencode)
}


def client_tools() -> Mapping[str, Mapping[str, Mapping[str, Json]]]:
    """Return the built-in tools by server and name, as objects of `tools/list`."""
    shown: dict[str, dict[str, Mapping[str, Json]]] = {
        server: {
            name: {"name": name, "inputSchema": {**tool.schema}} for name, tool in tools.items()
        }
        for server, tools in known_servers().items()
    }
    return {FILES: shown[FILES], FETCH: shown[FETCH], SHELL: {"run_command": SHELL_TOOL}}


def annotated_client_tools() -> list[ReadServer]:
    """Return the annotations of these servers."""
    return [
        replace(annotate(server, [*tools.values()]), annotations=server)
        for server, tools in client_tools().items()
    ]
