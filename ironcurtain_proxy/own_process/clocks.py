"""The system's clocks, random ids, and the name of this machine."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.escalation import EscalationId
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.steady_clock import seconds_since_boot

_wall: Final = partial(datetime.now, UTC)  # noqa: TID251  the one clock

_BEGAN: Final = _wall(), seconds_since_boot()
"""One starting point for all clocks of this process, so that their values can be compared."""


class SystemClock(Struct, eq=False):
    """Implements `ports.Clock` with the machine's clocks."""

    wall: Callable[[], datetime] = _wall
    elapsed: Callable[[], float] = seconds_since_boot
    began: tuple[datetime, float] = _BEGAN

    def now(self) -> datetime:
        """Aware, UTC."""
        return self.wall()

    def steady(self) -> datetime:
        """Aware, UTC; never jumps."""
        moment, elapsed = self.began
        return moment + timedelta(seconds=self.elapsed() - elapsed)

    monotonic = staticmethod(monotonic)
    """Seconds. Asked at most steps of a call, so there is no function around it."""


class RandomIds:
    """Random names."""

    def new(self) -> RequestId:
        """Return a fresh id of a call."""
        return RequestId(_uuid4())

    def new_escalation(self) -> EscalationId:
        """Return a fresh id of a question."""
        return EscalationId(_uuid4())


def _uuid4() -> str:
    """Return a random UUID in words; `uuid.uuid4` takes three times as long."""
    raw = os.urandom(16)
    one = raw.hex()
    variant = _VARIANTS[raw[8] & 3]
    return f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{variant}{one[17:20]}-{one[20:]}"


_VARIANTS: Final = "89ab"
"""The digits that name the variant of RFC 9562: two random bits are left."""


def machine_id() -> str:
    """Return a name of this machine that tells it from others, in hexadecimal."""
    known = b""
    with suppress(OSError):
        known = Path("/etc/machine-id").read_bytes().strip()
    # Containers of one image may have the same file.
    return sha256(known + b"\0" + os.uname().nodename.encode()).hexdigest()[:32]
