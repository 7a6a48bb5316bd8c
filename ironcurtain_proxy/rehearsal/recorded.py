"""A recorded call, and the result of reading transcripts."""

from dataclasses import dataclass, field

from ironcurtain_proxy.facts.client_tools import ServerCall
from ironcurtain_proxy.model.json import Arguments
from ironcurtain_proxy.model.operation import Operation, RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptCall:
    """One tool call of a recorded session."""

    session: str
    directory: str
    """Absolute: the session's directory at that moment. Empty means unknown."""
    tool: str
    """The client's name of the tool."""
    arguments: Arguments
    branch: str = ""
    """The current branch, or empty if the transcript names none."""
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


def as_tool_call(call: ServerCall) -> Operation:
    """Return the call in the form of the proxy."""
    return Operation(
        request_id=RequestId("rehearsed"),
        exposed_name=f"{call.server}__{call.tool}",
        server=call.server,
        tool=call.tool,
        arguments=call.arguments,
        params={},
    )
