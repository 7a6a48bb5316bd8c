"""A composite tool: a list of calls that the operator combined under one name."""

from dataclasses import dataclass
from typing import Final

from ironcurtain_proxy.model.json import Arguments

MAX_STEPS: Final = 50


@dataclass(frozen=True, slots=True)
class CompositeStep:
    """One call of a composite. The policy judges it like any other call."""

    tool: str
    """The tool's name for the agent: `server__tool`."""
    arguments: Arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeSpec:
    """A composite tool, as the operator configured it."""

    name: str
    """Lower-case letters, digits, `_` and `-`; at most 64."""
    description: str = ""
    steps: tuple[CompositeStep, ...]
    """The steps in the order in which they run; 1 to `MAX_STEPS`."""
