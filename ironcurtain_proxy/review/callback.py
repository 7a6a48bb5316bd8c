"""A reviewer in the same process: a function of the embedding program.

Any return value other than a clear approval is a refusal.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable
from typing import Final, TypeAlias

import anyio

from ironcurtain_proxy.model.decision import HUMAN, TIMEOUT, Person, Program, of_record
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling
from ironcurtain_proxy.ports import Clock

_log: Final = logging.getLogger(__name__)

OnEscalation: TypeAlias = Callable[[Escalation], "Awaitable[object] | object"]
"""Answers a question with `Approved` or `Declined`, or in the words of response files:
`{"decision": "approved" | "denied", "whitelistSelection": 0}`. A plain function must not block.
"""


class CallbackReviewer:
    """Implements `ports.Reviewer` over a function."""

    def __init__(self, on_escalation: OnEscalation, clock: Clock) -> None:
        self._on_escalation = on_escalation
        self._clock = clock

    def is_reachable(self) -> bool:
        """True: a function can always be called."""
        return True

    async def ask(self, escalation: Escalation) -> Ruling:
        """Call the function, and wait at most until the escalation's deadline."""
        seconds = (escalation.deadline - self._clock.steady()).total_seconds()
        if seconds <= 0:
            return _expired()
        answer: object = None
        with anyio.move_on_after(seconds) as waited:
            try:
                found = self._on_escalation(escalation)
                answer = await found if isawaitable(found) else found
            except Exception as error:  # noqa: BLE001  its defect refuses one call, no more
                _log.exception("on_escalation failed")
                return _invalid(f"on_escalation raised {type(error).__name__}")
        if waited.cancelled_caught:
            return _expired()
        return _read(answer, escalation)


def _read(answer: object, escalation: Escalation) -> Ruling:
    match answer:
        case Approved(remember=remember):
            if remember is not None and escalation.chosen(remember) is None:
                return _invalid("on_escalation would remember what was not offered")
            return _by_reviewer(answer)
        case Declined():
            return _by_reviewer(answer)
        case {"decision": "approved", **more}:
            chosen = more.get("whitelistSelection")
            place = chosen if chosen is None or isinstance(chosen, int) else -1
            return _read(Approved(by=HUMAN, remember=place), escalation)
        case {"decision": "denied"}:
            return Declined(by=HUMAN, kind="denied")
        case _:
            return _invalid("on_escalation gave no ruling")


def _by_reviewer(ruling: Approved | Declined) -> Ruling:
    """Return the ruling if it is a person's or a named reviewer's, also if that is named as text.

    The embedding program answers for its user, and never in the name of a part of the proxy.
    """
    said: object = ruling.by
    by = of_record(said) if isinstance(said, str) else said
    if not isinstance(by, Person | Program):
        return _invalid("on_escalation names a reviewer that only the proxy has")
    return replace(ruling, by=by)


def _expired() -> Declined:
    return Declined(by=TIMEOUT, kind="expired")


def _invalid(reason: str) -> Declined:
    return Declined(by=HUMAN, kind="invalid", reason=reason)
