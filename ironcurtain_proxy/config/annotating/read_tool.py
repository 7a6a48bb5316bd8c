"""What is known of one tool."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ironcurtain_proxy.model.json import Json

Kind: TypeAlias = Literal["files", "fetches", "shell", "looks", "keeps", "unknown"]
"""What a tool is to a preset.

`files`: the paths it is given are all that it touches. `fetches`: the URLs. `shell`: it runs a
shell command. `looks`, `keeps`: it shows, or changes, what is its server's own; only tools of
shipped servers. `unknown`: nobody can say.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTool:
    """A tool, its arguments, and what it is taken for."""

    name: str
    kind: Kind
    arguments: Mapping[str, Json]
    """Roles by argument, as `tool-annotations.json` writes them."""
    schema: Mapping[str, Json] = field(default_factory=dict)
    command: str | None = None
    """The argument that holds a shell command."""
    changes: bool = True
    """Whether it may do more than read."""
    why: str = ""
    """Why it is `unknown`, or denied; for people."""
    is_denied: bool = False
    """It cannot be annotated without opening what nobody has looked at: it is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadServer:
    """A server's tools, and the name under which policy and annotations know it."""

    name: str
    """The operator's name."""
    annotations: str
    tools: tuple[ReadTool, ...] = ()
    error: str = ""
    """Why its tools are not known."""
    left_out: int = 0
    """Tools that cannot be written down: they are denied."""
