"""The proxy's own tools. Pure: no I/O, no clock, no log.

They show the agent the state of its own session and change nothing. Their prefix is theirs alone:
a server's tool of such a name is never reached.
"""

from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.json import Arguments, Json

PREFIX: Final = "ironcurtain_"

STATUS: Final = "ironcurtain_escalation_status"

STATUS_TOOL: Final[dict[str, Json]] = {
    "name": STATUS,
    "title": "Status of held calls",
    "description": (
        "Shows which of your calls wait for an approval, and which were approved meanwhile. Make "
        "an approved call again, exactly as it was, within five minutes: it then runs once. "
        "Nothing can be approved here."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "id": {
                "type": "string",
                "description": "The number behind HELD: of one call; without it all are shown.",
            }
        },
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}

_WORDS: Final = {
    "open": "waits for an approval",
    "approved": "approved: make the same call again",
    "refused": "refused: make the same call again to be told why",
}


def status(questions: Sequence[tuple[Escalation, str]], arguments: Arguments) -> dict[str, Json]:
    """The result of the status tool.

    Args:
        questions: those of this session, with where each stands.
        arguments: of the call; an `id` names one question.
    """
    wanted = arguments.get("id")
    rows: list[Json] = [
        {
            "id": escalation.id,
            "tool": escalation.exposed_name,
            "reason": escalation.ground.reason,
            "state": state,
            "expiresAt": escalation.deadline.isoformat(timespec="seconds"),
        }
        for escalation, state in questions
        if wanted is None or wanted == escalation.id
    ]
    lines = [
        f"{row['id']} {row['tool']}: {_WORDS.get(str(row['state']), row['state'])}"
        for row in rows
        if isinstance(row, dict)
    ]
    text = "\n".join(lines) or "No call of yours waits for an approval."
    content: list[Json] = [{"type": "text", "text": text}]
    return {"content": content, "structuredContent": {"escalations": rows}, "isError": False}
