"""The texts of replies to the agent.

A refusal has two blocks: the first says what happened, in words that other programs match; the
second says why, and what to do. The texts name no files, commands of servers or exceptions.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, assert_never

from ironcurtain_proxy.model.decider import (
    CONTAINMENT,
    ClientDialog,
    Contained,
    Decider,
    Engine,
    Grants,
    LlmApprover,
    Nobody,
    Person,
    Program,
    ProxyItself,
    Signers,
)
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.model.reply import Answered, Failed, Refused, RefusedBy, Reply, Withheld

NOT_APPROVED: Final = "{kind} '{name}' execution denied: {whom} did not approve the action"

REFUSALS: Final[Mapping[RefusedBy, tuple[str, ...]]] = MappingProxyType(
    {
        "unknown-tool": ("{reason}",),
        "arguments": ("{reason}",),
        "policy": (
            "DENIED: {reason}",
            (
                "The policy forbids this call (rule: {rule}). The denial is final: do not retry "
                "it or look for a way around it. Use another approach, or tell the user that the "
                "policy would have to be changed."
            ),
        ),
        # Programs match the first block word for word.
        "no-reviewer": (
            "{kind} '{name}' execution denied: no approval channel available",
            (
                "ESCALATION REQUIRED: {clause}. Action denied (no escalation handler). Rule: "
                "{rule}. This call needs an approval, and nobody is reviewing. Tell the user "
                "exactly that, and that the operator of this proxy can open the reviewer's screen: "
                "then the call can be made again. Meanwhile continue with what needs no approval."
            ),
        ),
        # Programs match the first block word for word.
        "declined": (
            NOT_APPROVED,
            (
                "ESCALATION DENIED: {clause}. Rule: {rule}.{note} Tell the user, and offer to try "
                "again or to do it another way."
            ),
        ),
        "expired": (
            "{kind} '{name}' execution denied: nobody answered in time",
            (
                "ESCALATION DENIED: {clause}. Rule: {rule}. Nobody answered in time. Tell the "
                "user, who may ask for it again."
            ),
        ),
        "lapsed": (
            "DENIED: {reason}",
            (
                "Nothing was done (rule: {rule}). The call may be made again: what is not "
                "approved any more is asked about then."
            ),
        ),
        "held": (
            "HELD: {note}",
            (
                "ESCALATION REQUIRED: {clause}. Rule: {rule}. A reviewer has been asked and "
                "has not answered yet. Go on with something else; make exactly the same call again "
                "later: it is not asked about twice, and runs once when it is approved."
            ),
        ),
        "limit": (
            "HELD: too many calls of this session wait for a reviewer",
            (
                "ESCALATION REQUIRED: {clause}. Rule: {rule}. Nobody has been asked about this "
                "call yet. Go on with something else; make exactly the same call again later."
            ),
        ),
        "breaker": ("CIRCUIT BREAKER: {reason}",),
        "busy": ("Error: {reason}", "Nothing was done. The call may be tried again."),
        "audit": (
            "DENIED: {reason}",
            (
                "The audit log cannot be written. Tell the user: the operator has to repair it and "
                "restart ironcurtain-proxy."
            ),
        ),
        "kernel": (
            "DENIED: {reason}",
            "This is a defect of ironcurtain-proxy; its log says more.",
        ),
    }
)
"""The two blocks of each refusal."""

WORKING_DIRECTORY_RULE: Final = "git-path-enrichment-failed"
"""The one ground whose text other programs know with `Error: ` before it."""

NOT_RECORDED_NOTE: Final = (
    "Note from ironcurtain-proxy: this call was executed, not recorded. The audit log cannot be "
    "written; later calls are denied until the operator has repaired it."
)


PERHAPS_DONE_NOTE: Final = (
    "The server had the call, and may have carried it out. Look at what it did before you make the "
    "call again."
)

WITHHELD_NOTE: Final = (
    "The server was called, and the call may have been carried out (rule: {rule}). Do not make it "
    "again to get its answer: tell the user that this server asks for something that the proxy "
    "does not pass on."
)

PUT_BACK_NOTE: Final = (
    "Note from ironcurtain-proxy: after this call, {what}. Only the user changes these files: tell "
    "the user, and do not write them again."
)
BLOCKED_NOTE: Final = (
    "[SANDBOX BLOCKED: host {host}] Note from ironcurtain-proxy: the sandbox stopped this call on "
    "its way there. If it is needed, make the same call again: a reviewer is then asked about it "
    "and told of the host."
)
_MOST_PUT_BACK: Final = 10


def result_of(reply: Reply, exposed_name: str) -> dict[str, Json]:
    """The `result` object of a reply.

    Args:
        reply: the reply to the call; `Answered` with a JSON-RPC error is handled elsewhere.
        exposed_name: the tool's name as the agent used it.
    """
    match reply:
        case Answered(result=answer):
            return _with_notes(dict(answer.result or {}), _notes(reply))
        case Failed(message=message, perhaps_done=done):
            blocks = [f"Error: {message}", *([PERHAPS_DONE_NOTE] if done else [])]
            return error_result(*blocks, *_notes(reply))
        case Withheld(ground=ground):
            blocks = [f"DENIED: {ground.reason}", WITHHELD_NOTE.format(rule=ground.rule)]
            return error_result(*blocks, *_notes(reply))
        case Refused():
            return error_result(*refusal_blocks(reply, exposed_name))
        case _:
            assert_never(reply)


def is_as_given(reply: Reply) -> bool:
    """Whether the reply is a server's answer with nothing added."""
    if not isinstance(reply, Answered):
        return False
    is_plain = reply.recorded and not reply.put_back and not reply.result.refused_host
    return is_plain or not _notes(reply)


def error_result(*texts: str) -> dict[str, Json]:
    """A tool result that says the call failed, one text block for each text."""
    content: list[Json] = [{"type": "text", "text": text} for text in texts]
    return {"content": content, "isError": True}


def refusal_blocks(refused: Refused, exposed_name: str, kind: str = "tool") -> list[str]:
    """The reason of a refusal, and what the agent can do, in one text for each block of the answer.

    Args:
        refused: the refusal.
        exposed_name: as the agent named it.
        kind: the word for the operation.
    """
    ground = refused.ground
    if ground.rule == WORKING_DIRECTORY_RULE:
        return [f"Error: {ground.reason}"]
    # One pass over our own text: the reason may hold an agent's or server's words, no template.
    # A reason is a sentence, and some of the blocks go on after it.
    clause = ground.reason.removesuffix(".")
    note = (
        f' The reviewer says: "{refused.note}".'
        if refused.by == "declined" and refused.note
        else refused.note
    )
    said = {
        "name": exposed_name,
        "kind": kind,
        "reason": ground.reason,
        "clause": clause,
        "rule": ground.rule,
        "note": note,
        "whom": decider_in_words(refused.decider),
    }
    return [block.format(**said) for block in REFUSALS[refused.by]]


def decider_in_words(decider: Decider) -> str:
    """Return the party that did not approve, for the agent: the user, or another reviewer."""
    match decider:
        case Program(name=name, kind="model"):
            return f"the model {visible(name)}"
        case Program(name=name):
            return f"the reviewer {visible(name)}"
        case LlmApprover():
            return "the auto-approver"
        case (
            Person()
            | Signers()
            | Engine()
            | Grants()
            | Contained()
            | ClientDialog()
            | ProxyItself()
            | Nobody()
        ):
            # Agents know the words of the original program, which has no other reviewers.
            return "user"
        case _:
            assert_never(decider)


def _notes(reply: Answered | Failed | Withheld) -> list[str]:
    """The proxy's own notes on a call that was forwarded."""
    notes = [] if reply.recorded else [NOT_RECORDED_NOTE]
    if isinstance(reply, Answered) and reply.result.refused_host and _is_contained(reply):
        notes.append(BLOCKED_NOTE.format(host=visible(reply.result.refused_host)))
    if reply.put_back:
        said = [one.said for one in reply.put_back[:_MOST_PUT_BACK]]
        notes.append(PUT_BACK_NOTE.format(what="; ".join(said)))
    return notes


def _is_contained(reply: Answered) -> bool:
    return reply.allowed is not None and reply.allowed.by == CONTAINMENT


def _with_notes(result: dict[str, Json], notes: list[str]) -> dict[str, Json]:
    if not notes:
        return result
    content = result.get("content")
    blocks: list[Json] = list(content) if isinstance(content, list) else []
    said: list[Json] = [{"type": "text", "text": note} for note in notes]
    return {**result, "content": [*blocks, *said]}
