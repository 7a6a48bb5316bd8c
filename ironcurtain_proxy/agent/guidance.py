"""The instructions on approvals, which the agent gets when it connects (MCP `instructions`)."""

from functools import cache
from pathlib import Path
from typing import Final

FILE: Final = "TOOL_USAGE.md"


@cache
def tool_usage() -> str:
    """The text of `TOOL_USAGE.md`."""
    return Path(__file__).with_name(FILE).read_text(encoding="utf-8")
