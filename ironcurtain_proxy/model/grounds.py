"""Grounds of the mediator's own decisions, beside those of the policy."""

from typing import Final

from ironcurtain_proxy.model.decision import Allow, Ground

CHANGED: Final = Ground("changed-meanwhile", "what it names changed while waiting")
"""The call differs from what was judged a moment ago."""

ENDED: Final = Ground("approval-ended", "an approval that it rests on ended while it waited")
"""A grant or a plan's budget that the call relied on has ended."""

WITHDRAWN: Final = Ground("withdrawn", "withdrawn before it was carried out")

OWN_TOOL: Final = Allow(Ground("own-tool", "The tool is the proxy's own and changes nothing"))

NOT_RECORDED: Final = Ground(
    "audit-unavailable", "the call cannot be recorded, so it is not carried out"
)

DEFECT: Final = Ground("internal-error", "the call could not be judged, so it is not carried out")

NO_ROOM: Final = Ground("too-large-together", "too many large calls are under way at once")


NO_TASKS: Final = Ground(
    "tasks-not-allowed",
    "calls that run as a task are not carried out: make the same call without task",
)

SUBSCRIBED_TO_TOO_MUCH: Final = Ground(
    "too-many-subscriptions", "the session has too many subscriptions: end those that are done"
)


NOT_AVAILABLE: Final = Ground(
    "not-available",
    "There is nothing of this name that may be used here. Tell the user: where the server has it, "
    "the operator can annotate and allow it",
)
"""The answer for a prompt or template that is not listed, whether or not its server has it. The
record has the ground of the denial."""

HELD_RULE: Final = "pinned"
HELD_ADVICE: Final = (
    "Nothing was done. Do not retry: tell the user that the server's description of it changed, "
    "and that the operator has to look at the change and accept it."
)
"""The advice on every part that differs from what a person accepted."""


def held_part(what: str, why: str) -> Ground:
    """A prompt, a template or a view differs from what was accepted."""
    return Ground(HELD_RULE, f"The {what} {why}. {HELD_ADVICE}")


def asking_answer(asked: str) -> Ground:
    """The server's answer carries a question, and the policy lets no server ask."""
    return Ground(
        "server-asks", f"the server's answer asks for something ({asked}), which no setting allows"
    )
