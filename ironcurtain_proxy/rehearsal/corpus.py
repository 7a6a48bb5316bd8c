"""Lines `{"session", "cwd", "branch", "tool", "input", "refused"?}`: one call each."""

from collections.abc import Mapping

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.rehearsal.recorded import TranscriptCall


def is_of_corpus(row: Mapping[str, Json]) -> bool:
    """Whether a line is of this format."""
    return "session" in row and "tool" in row and "input" in row


def call_of(row: Mapping[str, Json]) -> TranscriptCall | None:
    """The call of a line; None: it is not of its shape."""
    tool, given = row["tool"], row["input"]
    directory, branch = row.get("cwd"), row.get("branch")
    if not isinstance(tool, str) or not isinstance(given, dict):
        return None
    return TranscriptCall(
        session=str(row["session"]),
        directory=directory if isinstance(directory, str) else "",
        tool=tool,
        arguments=given,
        branch=branch if isinstance(branch, str) else "",
        refused=row.get("refused") is True,
    )
