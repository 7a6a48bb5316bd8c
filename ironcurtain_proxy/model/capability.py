"""The capabilities of a tool, and its danger.

A declaration describes and never decides: it has no word about approval.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

Capability: TypeAlias = str
"""A name such as `fs.write`. Dotted suffixes (`fs.write.outside_base`) refine it. Any other name is
kept as written and belongs to no known capability."""

CAPABILITIES: Final[Mapping[Capability, str]] = MappingProxyType(
    {
        "fs.read": "read files",
        "fs.write": "create or change files",
        "fs.delete": "delete files",
        "net.egress": "send data over the network",
        "proc.exec": "run programs",
        "data.user": "use personal data",
        "secrets.access": "use secrets",
    }
)
"""The known capabilities, each with its description for people."""

Isolation: TypeAlias = Literal["isolated", "unisolated", "unknown"]
"""Whether the agent's servers run in a disposable environment."""


class SafetyLevel(IntEnum):
    """The harm of a mistake with a tool. Any other number counts as dangerous."""

    SAFE = 1
    MODERATE = 2
    DANGEROUS = 3


def spoken_of(names: frozenset[str]) -> frozenset[str]:
    """The names under which a restriction may list a tool.

    A list that exempts tools needs certain names. A list that stops tools, or asks about them, also
    counts for the bare name while that is not certain: otherwise a server could remove the
    restriction by listing a tool of the same name, or by listing nothing.

    Args:
        names: those that are certain; `server/tool` is among them.
    """
    return names | {name.partition("/")[2] for name in names if "/" in name}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclaration:
    """The operator's declaration of what a tool can do."""

    tool_id: str
    """`server/tool`; a bare name if one server has it."""
    capabilities: tuple[Capability, ...] = ()
    safety_level: SafetyLevel | None = None
    """The declared level; None: it is computed from the argument roles."""
    command_argument: str | None = None
    """The argument that holds a shell command; None: no argument does."""
