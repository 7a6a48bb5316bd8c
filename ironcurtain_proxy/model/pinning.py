"""What is pinned of a server, and how strictly."""

from typing import Final, Literal, TypeAlias, get_args

Section: TypeAlias = Literal["instructions", "tools", "prompts", "templates", "views"]
"""What a server says of itself before it is used; `views` is the HTML of MCP Apps."""
SECTIONS: Final[tuple[Section, ...]] = get_args(Section)

PinMode: TypeAlias = Literal["on", "warn", "off"]
"""The consequence of a change: it is held until a person accepts it; it is said; none."""
PIN_MODES: Final[tuple[PinMode, ...]] = get_args(PinMode)
