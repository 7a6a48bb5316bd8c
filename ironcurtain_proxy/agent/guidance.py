"""What the agent is told about approvals when it connects (MCP `instructions`)."""

from functools import cache
from importlib.resources import files
from typing import Final

FILE: Final = "TOOL_USAGE.md"


@cache
def tool_usage() -> str:
    """The text of `TOOL_USAGE.md`."""
    return files("ironcurtain_proxy.agent").joinpath(FILE).read_text(encoding="utf-8")
