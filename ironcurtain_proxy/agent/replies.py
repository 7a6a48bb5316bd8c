"""What became of a call, in words for the agent. Pure: no I/O, no clock, no log.

A refusal has two blocks: the first says what happened in words that other programs know, the
second why and what to do about it. Nothing here tells of files, servers' commands or exceptions.
"""

from typing import Final, assert_never

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.reply import Answered, Failed, Refused, Reply

NO_CHANNEL: Final = (
    "tool '{name}' execution denied: no approval channel available (session key missing)"
)
"""Requirement E-27, word for word."""

NOT_RECORDED_NOTE: Final = (
    "Note from ironcurtain-proxy: this call was executed, not recorded. The audit log cannot be "
    "written; later calls are denied until the operator has repaired it."
)


def words(reply: Reply, exposed_name: str) -> dict[str, Json]:
    """The `result` object of a reply.

    Args:
        reply: what became of the call. An `Answered` that holds a JSON-RPC error is not for here.
        exposed_name: the tool's name as the agent used it.
    """
    match reply:
        case Answered(result=answer, recorded=recorded):
            result = dict(answer.result or {})
            return result if recorded else _with_note(result)
        case Failed(message=message, recorded=recorded):
            blocks = [f"Error: {message}"]
            return error_result(*blocks, *([] if recorded else [NOT_RECORDED_NOTE]))
        case Refused():
            return error_result(*_refusal(reply, exposed_name))
        case _:
            assert_never(reply)


def error_result(*texts: str) -> dict[str, Json]:
    """A tool result that says the call failed, one text block for each text."""
    content: list[Json] = [{"type": "text", "text": text} for text in texts]
    return {"content": content, "isError": True}


def _refusal(refused: Refused, exposed_name: str) -> tuple[str, ...]:
    reason, rule = refused.ground.reason, refused.ground.rule
    match refused.by:
        case "unknown-tool" | "arguments":
            return (reason,)
        case "policy":
            return (
                f"DENIED: {reason}",
                (
                    f"The policy forbids this call (rule: {rule}). The denial is final: do not "
                    "retry it or look for a way around it. Use another approach, or tell the user "
                    "that the policy would have to be changed."
                ),
            )
        case "no-reviewer":
            return (
                NO_CHANNEL.format(name=exposed_name),
                (
                    f"ESCALATION REQUIRED: {reason}. Action denied (no escalation handler). "
                    f"Rule: {rule}. A person would have to approve this call, and nobody can be "
                    "asked in this session: tell the user that this is a matter of configuration, "
                    "and continue with what needs no approval."
                ),
            )
        case "breaker":
            return (f"CIRCUIT BREAKER: {reason}",)
        case "busy":
            return (f"Error: {reason}", "Nothing was done. The call may be tried again.")
        case "audit":
            return (
                f"DENIED: {reason}",
                (
                    "The audit log cannot be written. Tell the user: the operator has to repair it "
                    "and restart ironcurtain-proxy."
                ),
            )
        case "kernel":
            return (
                f"DENIED: {reason}",
                "This is a defect of ironcurtain-proxy; its log says more.",
            )
        case _:
            assert_never(refused.by)


def _with_note(result: dict[str, Json]) -> dict[str, Json]:
    content = result.get("content")
    blocks: list[Json] = list(content) if isinstance(content, list) else []
    return {**result, "content": [*blocks, {"type": "text", "text": NOT_RECORDED_NOTE}]}
