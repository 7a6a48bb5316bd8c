"""A recorded call, and the result of reading transcripts."""

from dataclasses import dataclass, field

from ironcurtain_proxy.model.json import Arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptCall:
    """One tool call of a recorded session."""

    session: str
    directory: str
    """Absolute: the session's directory at that moment; empty: unknown."""
    tool: str
    """The client's name of the tool."""
    arguments: Arguments
    branch: str = ""
    """The current branch; empty: the transcript names none."""
    refused: bool = False
    """Whether the user refused it."""


@dataclass(slots=True)
class Recording:
    """All calls of some transcripts in order, and the unreadable parts."""

    calls: list[TranscriptCall] = field(default_factory=list)
    files: int = 0
    broken_lines: int = 0
    """Lines that are no JSON object, or whose call does not have the form of its format."""
    unreadable: list[str] = field(default_factory=list)
    """Files, each with the reason."""
    other_files: int = 0
    """Files in which no line was of a known format."""
