"""The proxy's own tools.

They show the state of the session, announce a plan, or carry out a composite of calls that the
operator wrote; each of its calls is decided like any other. Their prefix is reserved: a server's
tool with such a name is never reached.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.composite import CompositeSpec
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

PREFLIGHT: Final = "ironcurtain_preflight"

PREFLIGHT_TOOL: Final[dict[str, Json]] = {
    "name": PREFLIGHT,
    "title": "Announce a plan",
    "description": (
        "Announce the calls you are going to make, before you make them. Nothing is carried out. "
        "If the policy forbids one, you are told now; what needs an approval is asked about once, "
        "for all of them, instead of call by call. The answer names a run: its calls may then be "
        "made, each as often as announced, within ten minutes. A plan within a run names it as "
        "parent. End a run that is done with `end`."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "calls": {
                "type": "array",
                "minItems": 1,
                "maxItems": 100,
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "The tool, as you call it."},
                        "arguments": {"type": "object"},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                },
            },
            "parent": {"type": "string", "description": "The run that this is a part of."},
            "end": {"type": "string", "description": "The run that is done; then no calls."},
        },
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}

COMPOSITE: Final = "ironcurtain_run_"
"""The prefix of a composite tool's name."""


def is_own(tool: Json) -> bool:
    """Whether a tool's name has the prefix of the proxy's own tools."""
    return isinstance(tool, dict) and str(tool.get("name")).startswith(PREFIX)


def composite_tool(spec: CompositeSpec) -> dict[str, Json]:
    """A composite as the agent sees it."""
    steps = ", ".join([step.tool for step in spec.steps])
    return {
        "name": COMPOSITE + spec.name,
        "description": f"{spec.description or 'A list of calls.'} Carries out, in order: {steps}.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def preflight_result(
    run: str, capabilities: Sequence[str], asked_later: Sequence[str]
) -> dict[str, Json]:
    """The result of a plan that may be carried out."""
    needs = f" It may: {', '.join(capabilities)}." if capabilities else ""
    later = "".join([f"\nStill asked about when it is made: {text}" for text in asked_later])
    text = f"The plan may be carried out as run {run}.{needs}{later}"
    content: list[Json] = [{"type": "text", "text": text}]
    structured: dict[str, Json] = {
        "run": run,
        "capabilities": list(capabilities),
        "askedLater": list(asked_later),
    }
    return {"content": content, "structuredContent": structured, "isError": False}


def text_result(text: str, *, failed: bool = False) -> dict[str, Json]:
    """A result of one sentence."""
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def composite_result(steps: Sequence[tuple[str, Mapping[str, Json]]]) -> dict[str, Json]:
    """The result of a composite: all steps that ran; the last one may have failed."""
    content: list[Json] = []
    failed = False
    for number, (tool, result) in enumerate(steps, 1):
        failed = result.get("isError") is True
        word = "failed" if failed else "done"
        content.append({"type": "text", "text": f"step {number}, {tool}: {word}"})
        blocks = result.get("content")
        content += blocks if isinstance(blocks, list) else []
    return {"content": content, "isError": failed}


_WORDS: Final = {
    "open": "waits for an approval",
    "approved": "approved: make the same call again",
    "refused": "refused: make the same call again to be told why",
}


def status_result(
    questions: Sequence[tuple[Escalation, str]], arguments: Arguments
) -> dict[str, Json]:
    """The result of the status tool.

    Args:
        questions: the questions of this session, each with its state.
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
