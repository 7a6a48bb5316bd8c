"""A change of the policy while a call is in progress: the call is judged again, by the new policy.

Each attempt to carry a call to its reply belongs to one policy, the one that was in force when its
facts were gathered. An attempt ends without a reply where another policy came into force before the
call was sent. A reviewer's answer to the question of the old policy is not used.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.judge import Judge
from ironcurtain_proxy.mediation.refusals import turn_down
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.escalation import (
    AlreadyUsed,
    Approved,
    Declined,
    Escalation,
    Held,
    Ruling,
    Superseded,
    Unreachable,
)
from ironcurtain_proxy.model.grounds import CHANGED
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.reply import Refused, Reply
from ironcurtain_proxy.ports import ProgressListener, World

_MOST_AGAIN: Final = 16
"""The number of times that a call is judged again before it is refused."""


class PolicyChanges(Struct, frozen=True, kw_only=True):
    """Notices that the policy in force is no longer the policy by which a call was judged."""

    world: World
    journal: Journal
    judge: Judge

    def affect(self, case: Case) -> bool:
        """Whether another policy came into force since the call was judged."""
        return self.judge.has_changed(case.policy_version)

    async def settle(self, case: Case, attempt: Callable[[bool], Awaitable[Reply | None]]) -> Reply:
        """The reply of the first attempt that no change of the policy ended.

        Args:
            case: the call.
            attempt: carries the call to its reply by one policy; is told whether it is a further
                attempt.
        """
        reply = await attempt(False)  # noqa: FBT003  the first
        for _ in range(_MOST_AGAIN):
            if reply is not None:
                return reply
            if case.question is not None:
                await self.journal.unused(case.question)
            case.start_over()
            reply = await attempt(True)  # noqa: FBT003  a further one
        if reply is None:
            case.overrule(CHANGED)
        return reply or await self.journal.refuse(case, "policy", CHANGED)

    async def refuse(self, case: Case) -> Refused | None:
        """Refuse a call that differs from the judged call. None: another policy came into force."""
        return None if self.affect(case) else await self.journal.refuse(case, "policy", CHANGED)

    async def turn_down(
        self, case: Case, question: Escalation, ruling: Declined | Unreachable | Held | None
    ) -> Refused | None:
        """Refuse a call that was not approved. None: another policy came into force."""
        return None if ruling is None else await turn_down(self.journal, case, question, ruling)

    async def answer(
        self, case: Case, question: Escalation, on_progress: ProgressListener | None
    ) -> Ruling | Held | AlreadyUsed | None:
        """A reviewer's answer. None: another policy came into force, and nobody refused."""
        if self.affect(case):
            return None
        asked = self.world.clock.monotonic()
        ruling = await self.world.questions.settle(question, pulse(case.call.params, on_progress))
        case.wait(self.world.clock.monotonic() - asked)
        if isinstance(ruling, Superseded):
            return None
        if self.affect(case) and not isinstance(ruling, Declined):
            if isinstance(ruling, Approved):
                await self.journal.unused(ruling.question or question.id)
            return None
        return ruling


def sign_of_life(token: Json, seconds: float) -> Mapping[str, Json]:
    """The `params` of a progress notification of a call that waits for its approval.

    Progress values must grow, and those of the server begin at 0 or 1, so that these stay close
    to zero.
    """
    return {
        "progressToken": token,
        "progress": seconds / 1e9,
        "message": f"waiting for approval ({seconds:.0f} s)",
    }


def pulse(
    params: Mapping[str, Json], tell: Callable[[Mapping[str, Json]], Awaitable[None]] | None
) -> Callable[[float], Awaitable[None]] | None:
    """A function that reports a call's waiting seconds to the client; None: it asked for none.

    Args:
        params: the call's, with the client's token in `_meta`.
        tell: sends a progress notification.
    """
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if tell is None or token is None:
        return None
    return lambda seconds: tell(sign_of_life(token, seconds))
