"""The circuit breaker: identical calls are refused once they repeat too often.

The breaker ends loops: a call that fails or is refused and comes again as it was, and a call that
does something outside of the machine again and again. Denied calls count, too. A call that was done
and only reads, or can be taken back, does not count (`forgive`): a state that is looked at until it
changes, or the same test run after each edit, is normal work. Memory is bounded: calls outside the
window are forgotten, and of a flood only the newest are remembered.

Theory of operation: calls are remembered in two generations, by the hash of their key. A call that
comes again moves to the newer one. Once the newer one is as old as the window, no call of the older
one is inside it, and it is dropped as a whole.
"""

import math
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.model.decision import Ground

MAX_REMEMBERED: Final = 20_000
"""The largest number of different calls of a generation; both take less than 10 MiB. To make the
breaker forget one, an agent needs as many different calls within one window."""


class Breaker(Struct):
    """Counts identical calls in a sliding window."""

    threshold: int = 20
    """The number of identical calls that pass within a window; the next one is refused."""
    window: float = 60.0
    """Seconds."""
    _newer: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """The times of identical calls, oldest first, by the hash of their key: two keys with one hash
    are refused together, which never lets a call pass."""
    _older: dict[int, tuple[float, ...]] = field(default_factory=dict)
    _began: float = -math.inf
    """The beginning of the newer generation."""

    def trips(self, key: bytes | str, now: float) -> bool:
        """Return whether this call exceeds the threshold; if not, it is counted.

        Args:
            key: what makes two calls identical: server, tool and arguments, or their digest.
            now: seconds on a clock that never goes back.
        """
        if now - self._began >= self.window or len(self._newer) >= MAX_REMEMBERED:
            self._begin_generation(now)
        number = hash(key)
        before = self._newer.get(number) or self._older.pop(number, None)
        if before is None:
            self._newer[number] = (now,)
            return False
        alike = tuple([at for at in before if at > now - self.window])
        is_too_often = len(alike) >= self.threshold
        self._newer[number] = alike if is_too_often else (*alike, now)
        return is_too_often

    def forgive(self, key: bytes | str) -> None:
        """Count one call of this key no longer: it was done, and only read or can be taken back."""
        number = hash(key)
        for generation in (self._newer, self._older):
            if alike := generation.pop(number, None):
                if len(alike) > 1:
                    generation[number] = alike[:-1]
                return

    def _begin_generation(self, now: float) -> None:
        # After a pause, the newer generation is out of the window, too.
        is_over = now - self._began >= 2 * self.window
        self._older, self._newer = {} if is_over else self._newer, {}
        self._began = now

    def ground(self, server: str, tool: str) -> Ground:
        """Return the ground of a refusal by the breaker."""
        return Ground(
            "circuit-breaker",
            f"Tool '{server}__{tool}' called {self.threshold} times with identical arguments "
            f"within {self.window:g}s window. Try a different approach.",
        )
