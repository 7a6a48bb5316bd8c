"""Server answers that carry a question instead of a result.

A server's own questions (`elicitation/create`, `sampling/createMessage`) are refused. An answer can
carry the same question: an error that sends the user to a URL, a result that wants more input, a
task that is to be fetched later. A client acts on each, so each is a question, too.
"""

from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ToolResult

URL_ELICITATION_REQUIRED: Final = -32042
"""MCP's error that asks the client to open URLs."""

COMPLETE: Final = "complete"
"""The one `resultType` that marks a finished answer."""

_WORDS: Final = 40


def question_in(answer: ToolResult) -> str | None:
    """The kind of question that an answer carries, as a short name; None: it carries none."""
    if answer.error is not None:
        return _in_error(answer.error)
    return _in_result(answer.result or {})


def _in_error(error: Mapping[str, Json]) -> str | None:
    # Also -32042.0 and "-32042": clients read those as the same code.
    code, data = error.get("code"), error.get("data")
    asks = code == URL_ELICITATION_REQUIRED or (
        isinstance(code, str) and code.strip() == str(URL_ELICITATION_REQUIRED)
    )
    if asks or (isinstance(data, dict) and "elicitations" in data):
        return "url elicitation, error -32042"
    return None


def _in_result(result: Mapping[str, Json]) -> str | None:
    kind = result.get("resultType", COMPLETE)
    if kind != COMPLETE:
        return f"result type {kind[:_WORDS] if isinstance(kind, str) else 'that is no text'}"
    if "inputRequests" in result or "requestState" in result:
        return "result type input_required"
    return "result type task" if "task" in result else None
