"""The pinned parts of a server, and the modes of pinning."""

from typing import Final, Literal, TypeAlias, get_args

Section: TypeAlias = Literal[
    "title", "instructions", "tools", "prompts", "templates", "resources", "views"
]
"""A part of a server's description of itself; `resources` is what their list says of them, and
`views` is the HTML of MCP Apps."""
SECTIONS: Final[tuple[Section, ...]] = get_args(Section)

PinMode: TypeAlias = Literal["on", "warn", "off"]
"""The consequence of a change. `on`: the part is held until a person accepts it. `warn`: the change
is reported. `off`: nothing happens."""
PIN_MODES: Final[tuple[PinMode, ...]] = get_args(PinMode)
