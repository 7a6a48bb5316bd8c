"""A composite tool: a list of calls that the operator combined under one name."""

from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.json import Arguments

MAX_STEPS: Final = 50


class CompositeStep(Struct, frozen=True):
    """One call of a composite. The policy judges it like any other call."""

    tool: str
    """The tool's name for the agent: `server__tool`."""
    arguments: Arguments


class CompositeSpec(Struct, frozen=True, kw_only=True):
    """A composite tool, as the operator configured it."""

    name: str
    """Lower-case letters, digits, `_` and `-`; at most 64."""
    description: str = ""
    steps: tuple[CompositeStep, ...]
    """The steps in the order in which they run; 1 to `MAX_STEPS`."""
