"""The time and the ids of the real world."""

import uuid
from datetime import UTC, datetime
from time import monotonic

from ironcurtain_proxy.model.call import RequestId
from ironcurtain_proxy.model.escalation import EscalationId


class SystemClock:
    """The time as the machine has it."""

    def now(self) -> datetime:
        """Aware, UTC."""
        return datetime.now(UTC)  # noqa: TID251  the one clock

    def monotonic(self) -> float:
        """Seconds."""
        return monotonic()


class RandomIds:
    """Random names."""

    def new(self) -> RequestId:
        """A fresh id of a call."""
        return RequestId(str(uuid.uuid4()))  # noqa: TID251  the one source of ids

    def new_escalation(self) -> EscalationId:
        """A fresh id of a question."""
        return EscalationId(str(uuid.uuid4()))  # noqa: TID251  the one source of ids
