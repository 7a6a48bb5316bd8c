"""A recorded call, and what a reading of transcripts gave."""

from collections import Counter
from dataclasses import dataclass, field

from ironcurtain_proxy.model.json import Arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One tool call of a recorded session."""

    session: str
    directory: str
    """Absolute: where the session worked at that moment; empty: the transcript does not say."""
    tool: str
    """The client's name of the tool."""
    arguments: Arguments
    branch: str = ""
    """The branch that was checked out; empty: the transcript names none."""
    refused: bool = False
    """Whether the person said no."""


@dataclass(slots=True)
class Recording:
    """All calls of some transcripts, in order, and what could not be read."""

    calls: list[RecordedCall] = field(default_factory=list)
    files: int = 0
    broken_lines: int = 0
    """Lines that are no JSON object, or whose call is not of the shape of their format."""
    unreadable: list[str] = field(default_factory=list)
    """Files, each with the reason."""
    other_files: int = 0
    """Files in which no line was of a known format."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Calls of tools that no server of a preset has, by tool."""
