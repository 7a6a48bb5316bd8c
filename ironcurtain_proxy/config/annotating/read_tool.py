"""A tool and a server as annotated from `tools/list`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ironcurtain_proxy.model.json import Json

ToolKind: TypeAlias = Literal["files", "fetches", "shell", "looks", "keeps", "unknown"]
"""The kind of a tool for presets.

`files`: it touches only the paths it is given. `fetches`: only the URLs. `shell`: it runs a shell
command. `looks`, `keeps`: it reads, or changes, the server's own data; only for shipped servers.
`unknown`: none of these is certain.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTool:
    """A tool with its arguments and its kind."""

    name: str
    kind: ToolKind
    arguments: Mapping[str, Json]
    """Roles by argument, as `tool-annotations.json` writes them."""
    schema: Mapping[str, Json] = field(default_factory=dict)
    command: str | None = None
    """The argument that holds a shell command."""
    changes: bool = True
    """Whether the tool may do more than read."""
    why: str = ""
    """The reason for which the tool is `unknown` or denied, for people."""
    effect: str | None = None
    """The effect by its pack or its name; None: neither says it, or the kind says it."""
    is_packed: bool = False
    """Whether a pack describes it."""
    is_denied: bool = False
    """Whether the tool is left out and so denied: any annotation would allow something unexamined.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadServer:
    """A server's tools, and its name in policy and annotations."""

    name: str
    """The operator's name."""
    annotations: str
    tools: tuple[ReadTool, ...] = ()
    hosts: tuple[str, ...] = ()
    """The hosts that its sandbox kept it from, of a server that did not answer."""
    error: str = ""
    """The reason why the tools are not known; empty: they are known."""
    left_out: int = 0
    """Tools that cannot be written into the files; they are denied."""
